//! The tag that VLANEncap, EtherVLANEncap and SetVLANAnno add to frames, from their arguments.
use artery_engine::names::Names;
use artery_engine::{ArgError, ArgValue, Args, HandlerError, Packet, anno, parse_value};

/// Bits of a tag that are the VLAN's number.
const ID: u16 = 0xfff;

/// A tag, and which frames go without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VlanTagSpec {
    pub(super) tci: u16,
    /// Whether the annotation of each packet is its tag instead.
    pub(super) from_annotation: bool,
    /// The VLAN whose frames are not tagged.
    pub(super) native: Option<u16>,
}

/// A number within bounds.
struct Within<const LEAST: i64, const MOST: i64>(i64);

impl<const LEAST: i64, const MOST: i64> ArgValue for Within<LEAST, MOST> {
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let number = i64::parse(text, names).ok().filter(|n| (LEAST..=MOST).contains(n));
        number.map(Within).ok_or_else(|| format!("an integer from {LEAST} to {MOST}"))
    }
    fn fault(text: &str) -> String {
        match text.parse::<i64>() {
            Ok(n) if n < LEAST => format!("out of range, bound {LEAST}"),
            Ok(_) => format!("out of range, bound {MOST}"),
            Err(_) => "invalid number".into(),
        }
    }
}

impl VlanTagSpec {
    /// Reads VLAN_TCI, VLAN_PCP and VLAN_ID.
    pub(super) fn new(args: &Args<'_>) -> Result<VlanTagSpec, ArgError> {
        let tci = args.read::<Option<Tci>>("VLAN_TCI")?;
        let Within(id) = args.read::<Within<0, 0xfff>>("VLAN_ID")?;
        let Within(pcp) = args.read::<Within<0, 7>>("VLAN_PCP")?;
        let low = match tci {
            Some(Tci::Number(tci)) => tci,
            _ => id as u16,
        };
        let from_annotation = matches!(tci, Some(Tci::Annotation));
        Ok(VlanTagSpec { tci: low | (pcp as u16) << 13, from_annotation, native: None })
    }

    /// Reads the arguments of [`Self::new`] and NATIVE_VLAN.
    pub(super) fn with_native(args: &Args<'_>) -> Result<VlanTagSpec, ArgError> {
        let Within(native) = args.read::<Within<-1, 0xfff>>("NATIVE_VLAN")?;
        Ok(VlanTagSpec { native: u16::try_from(native).ok(), ..VlanTagSpec::new(args)? })
    }

    /// The tag of a packet; None if it stays untagged.
    pub(super) fn tag_for(&self, packet: &Packet) -> Option<u16> {
        let tci = if self.from_annotation {
            u16::from_be_bytes(packet.annotation(anno::VLAN_TCI))
        } else {
            self.tci
        };
        Some(tci).filter(|tci| Some(tci & ID) != self.native)
    }

    /// The arguments, as the `config` handler has them.
    pub(super) fn config(&self) -> String {
        let tag = match self.from_annotation {
            true => "ANNO".to_string(),
            false => format!("VLAN_ID {}, VLAN_PCP {}", self.tci & ID, self.tci >> 13),
        };
        match self.native {
            Some(0) => tag,
            Some(native) => format!("{tag}, NATIVE_VLAN {native}"),
            None => format!("{tag}, NATIVE_VLAN -1"),
        }
    }

    pub(super) fn tci(&self) -> String {
        if self.from_annotation { "ANNO".into() } else { self.tci.to_string() }
    }
    pub(super) fn id(&self) -> String {
        (self.tci & ID).to_string()
    }
    pub(super) fn pcp(&self) -> String {
        (self.tci >> 13).to_string()
    }
    pub(super) fn native(&self) -> String {
        self.native.map_or("-1".into(), |native| native.to_string())
    }

    pub(super) fn set_tci(&mut self, text: &str) -> Result<(), HandlerError> {
        match parse_value::<Tci>(text)? {
            Tci::Annotation => self.from_annotation = true,
            Tci::Number(tci) => (self.from_annotation, self.tci) = (false, tci),
        }
        Ok(())
    }
    pub(super) fn set_id(&mut self, text: &str) -> Result<(), HandlerError> {
        let Within(id) = parse_value::<Within<0, 0xfff>>(text)?;
        self.tci = self.tci & !ID | id as u16;
        Ok(())
    }
    pub(super) fn set_pcp(&mut self, text: &str) -> Result<(), HandlerError> {
        let Within(pcp) = parse_value::<Within<0, 7>>(text)?;
        self.tci = self.tci & 0x1fff | (pcp as u16) << 13;
        Ok(())
    }
    pub(super) fn set_native(&mut self, text: &str) -> Result<(), HandlerError> {
        let Within(native) = parse_value::<Within<-1, 0xfff>>(text)?;
        self.native = u16::try_from(native).ok();
        Ok(())
    }
}

/// A whole tag, or the word that stands for the annotation.
enum Tci {
    Annotation,
    Number(u16),
}

impl ArgValue for Tci {
    fn parse(text: &str, names: &Names) -> Result<Tci, String> {
        match text {
            "ANNO" => Ok(Tci::Annotation),
            text => u16::parse(text, names).map(Tci::Number),
        }
    }
    fn fault(text: &str) -> String {
        u16::fault(text)
    }
}
