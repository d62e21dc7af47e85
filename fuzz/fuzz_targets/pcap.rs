//! Any file: records until the first damage, then an error; never more bytes than a record says.
#![no_main]
use artery_device::PcapReader;
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = PcapReader::new("fuzz", Box::new(Cursor::new(data.to_vec()))) else { return };
    while let Ok(Some((record, bytes))) = reader.next_record() {
        assert!(bytes.len() <= data.len(), "{record:?}");
    }
});
