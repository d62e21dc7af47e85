//! The packet that a source sends again and again: DATA, made LENGTH bytes long.
use artery_engine::{ArgError, Args, Batch, Context, HandlerError, Packet, Pool, Time};

/// DATA when none is given: Click's.
pub(crate) const DATA: &str = "\"Random bullshit in a packet, at least 64 bytes long. Well, now it is.\"";
/// Most bytes of data and headroom together.
const LONGEST: usize = 65535;

/// The packets of a source.
pub(crate) struct Template {
    data: Vec<u8>,
    /// The requested length; without it, the length of `data`.
    length: Option<usize>,
    headroom: usize,
    /// One packet's bytes: `data`, repeated or cut.
    bytes: Vec<u8>,
}

impl Template {
    /// Reads DATA, and LENGTH where the class has it; `headroom` is the least that packets shall have.
    pub(crate) fn new(data: Vec<u8>, length: Option<usize>, headroom: usize) -> Result<Template, String> {
        let mut template = Template { data, length, headroom, bytes: Vec::new() };
        template.make_bytes()?;
        Ok(template)
    }
    /// The template of a class with DATA, LENGTH and DATASIZE.
    pub(crate) fn from_args(args: &Args<'_>) -> Result<Template, ArgError> {
        let length: Option<i64> = args.read("LENGTH")?;
        let length = if length.is_none() { args.read("DATASIZE")? } else { length };
        let length = length.and_then(|n| usize::try_from(n).ok());
        Template::new(args.read("DATA")?, length, 0).map_err(ArgError::Wrong)
    }
    fn make_bytes(&mut self) -> Result<(), String> {
        let length = self.length.unwrap_or(self.data.len());
        if length.saturating_add(self.headroom) > LONGEST {
            return Err(format!("a packet with its headroom must be at most {LONGEST} bytes long"));
        }
        if self.data.is_empty() && length > 0 {
            return Err("DATA must not be empty when LENGTH asks for bytes".to_string());
        }
        self.bytes = self.data.iter().copied().cycle().take(length).collect();
        Ok(())
    }

    /// Adds up to `n` packets to `into`; returns how many frames there were for.
    pub(crate) fn make_packets(&self, n: usize, time: Time, into: &mut Batch, cx: &Context<'_>) -> usize {
        let before = into.len();
        if self.fits_common_frames() {
            cx.pool().alloc_packets(n, into);
            let stamp = |packet: &mut Packet| self.write_packet(packet, time);
            into.iter_mut().skip(before).for_each(stamp);
        } else {
            into.extend((0..n).map_while(|_| self.make_big_packet(time, cx.pool())));
        }
        into.len() - before
    }
    #[inline]
    fn write_packet(&self, packet: &mut Packet, time: Time) {
        if let Ok(bytes) = packet.append(self.bytes.len()) {
            bytes.copy_from_slice(&self.bytes);
        }
        if time != Time::ZERO {
            packet.set_timestamp(time);
        }
    }
    /// Whether every fresh packet of a common frame has enough headroom and tailroom; see the pool.
    fn fits_common_frames(&self) -> bool {
        self.headroom <= 128 && self.bytes.len() <= 1500
    }
    fn make_big_packet(&self, time: Time, pool: &'static Pool) -> Option<Packet> {
        let mut packet = pool.alloc_packet_for(self.headroom + self.bytes.len())?;
        packet.make_room(self.headroom, self.bytes.len()).ok()?;
        self.write_packet(&mut packet, time);
        Some(packet)
    }

    /// The data in the format of the `data` handler.
    pub(crate) fn data_text(&self) -> String {
        String::from_utf8_lossy(&self.data).into_owned()
    }
    /// The requested length; -1 if there is none.
    pub(crate) fn length_text(&self) -> String {
        self.length.map_or("-1".to_string(), |length| length.to_string())
    }
    /// Bytes of one packet.
    pub(crate) fn packet_length(&self) -> usize {
        self.bytes.len()
    }
    pub(crate) fn headroom(&self) -> usize {
        self.headroom
    }
    pub(crate) fn set_data(&mut self, data: &[u8]) -> Result<(), HandlerError> {
        self.try_change(|template| template.data = data.to_vec())
    }
    /// Changes the length; negative means that of the data.
    pub(crate) fn set_length(&mut self, length: i64) -> Result<(), HandlerError> {
        self.try_change(|template| template.length = usize::try_from(length).ok())
    }
    pub(crate) fn set_headroom(&mut self, headroom: usize) -> Result<(), HandlerError> {
        self.try_change(|template| template.headroom = headroom)
    }
    /// Applies a change, unless the packet becomes invalid.
    fn try_change(&mut self, change: impl FnOnce(&mut Template)) -> Result<(), HandlerError> {
        let (data, bytes) = (self.data.clone(), self.bytes.clone());
        let mut changed = Template { data, bytes, ..*self };
        change(&mut changed);
        changed.make_bytes().map_err(HandlerError::Refused)?;
        *self = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_cut_or_repeated_to_the_length() {
        let mut template = Template::new(b"abc".to_vec(), None, 0).unwrap();
        assert_eq!(template.bytes, b"abc");
        template.set_length(7).unwrap();
        assert_eq!(template.bytes, b"abcabca");
        template.set_length(2).unwrap();
        assert_eq!(template.bytes, b"ab");
        template.set_length(-1).unwrap();
        assert_eq!((template.bytes.as_slice(), template.length_text().as_str()), (&b"abc"[..], "-1"));
    }

    #[test]
    fn an_impossible_packet_is_refused_and_changes_nothing() {
        let mut template = Template::new(b"abc".to_vec(), None, 0).unwrap();
        assert!(template.set_length(70_000).is_err());
        assert_eq!(template.bytes, b"abc");
        assert!(Template::new(Vec::new(), Some(5), 0).is_err());
    }
}
