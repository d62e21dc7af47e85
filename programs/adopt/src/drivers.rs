//! What the drivers of ports send of what XDP redirects to them.
use artery_device::xdp_features;
use std::collections::BTreeSet;
use std::io;

/// Most bytes of a packet whose frame lies in one buffer, with any driver of a card: a page of 4096
/// bytes, less what drivers keep before and behind a frame (256 and 320 bytes) and the Ethernet
/// header with two tags.
pub const MOST_MTU_OF_A_BUFFER: u32 = 4096 - 256 - 320 - 22;

/// What drivers do with redirected frames, by the numbers of interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriverSurvey {
    /// Those whose drivers send none.
    pub(crate) without_redirect: BTreeSet<u32>,
    /// Those whose drivers also send frames that lie in several buffers.
    pub(crate) multi_buffer: BTreeSet<u32>,
}

impl DriverSurvey {
    /// Asks the kernel about interfaces. Nothing is sent to those in `undelivered`, whatever it answers.
    pub(crate) fn of(links: impl Iterator<Item = u32>, undelivered: &BTreeSet<u32>) -> DriverSurvey {
        let mut survey = DriverSurvey::default();
        for link in links {
            let (sends, multi_buffer) = match xdp_features(link) {
                Ok(features) => (features.sends_redirected, features.sends_multi_buffer),
                // A kernel that can't be asked: a driver that runs programs usually sends, too, but it may
                // cut off what is not in the first buffer.
                Err(error) => (error.kind() == io::ErrorKind::NotFound, false),
            };
            if undelivered.contains(&link) || !sends {
                survey.without_redirect.insert(link);
            } else if multi_buffer {
                survey.multi_buffer.insert(link);
            }
        }
        survey
    }
}
