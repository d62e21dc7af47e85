//! Makes programs of the kernel's BPF machine (its instruction-set document, RFC 9669),
//! with labels for jumps.
use super::{Instruction, instruction};

const LOAD_64: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_NUMBER: u8 = 0x62;
/// Operates on 64 bits. The operand selects the operation; 0 adds.
const ATOMIC: u8 = 0xdb;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const WIDE: u8 = 0x07;
const NARROW: u8 = 0x04;
const FROM_REGISTER: u8 = 0x08;
const MAP_BY_DESCRIPTOR: u8 = 1;
const VALUE_BY_DESCRIPTOR: u8 = 2;

/// A register. Calls take [`R1`](Register::R1) to `R5`, which they spoil, and answer in `R0`; `R10` is the
/// end of the stack and can't be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The second operand of an instruction: a register or a number.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// What a register holds.
    Register(Register),
    /// A number, whose sign is extended to 64 bits.
    Number(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Operand {
        Operand::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Operand {
        Operand::Number(number)
    }
}

/// How much is loaded or stored.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Size {
    /// A load or store of 4 bytes.
    Word = 0x00,
    /// A load or store of 2 bytes.
    Half = 0x08,
    /// A load or store of 1 byte.
    Byte = 0x10,
    /// A load or store of 8 bytes.
    Double = 0x18,
}

/// The operation of a 64-bit instruction.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
    /// Copies of the highest bit come in from the left.
    ShiftRightSigned = 0xc0,
}

/// When a jump is taken; numbers are compared without sign.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Test {
    Equal = 0x10,
    Above = 0x20,
    AtLeast = 0x30,
    NotEqual = 0x50,
    Below = 0xa0,
    AtMost = 0xb0,
}

/// A place that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Why a program can't be assembled: a mistake of the code that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAssembled {
    /// A jump leads to a label that was put nowhere.
    #[error("a jump leads to label {}, which is nowhere", .0.0)]
    Unplaced(Label),
    /// A jump leads further than 32,767 instructions.
    #[error("label {} is too far from a jump to it", .0.0)]
    TooFar(Label),
}

/// A program in the making.
#[derive(Debug, Default)]
pub struct Assembler {
    program: Vec<Instruction>,
    places: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// A label that is nowhere yet.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }
    /// Puts a label in front of what comes next.
    pub fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.program.len());
    }

    /// `to = to OPERATION with`, of 64 bits.
    pub fn compute(&mut self, operation: Operation, to: Register, with: impl Into<Operand>) {
        self.arithmetic(WIDE, operation, to, with.into());
    }
    /// The same of the lower 32 bits; the upper become 0.
    pub fn compute_32(&mut self, operation: Operation, to: Register, with: impl Into<Operand>) {
        self.arithmetic(NARROW, operation, to, with.into());
    }
    /// Copies `what` to the register `to`.
    pub fn set(&mut self, to: Register, what: impl Into<Operand>) {
        self.compute(Operation::Move, to, what);
    }
    /// Converts a number of `bits` bits (16, 32 or 64) between network order and this machine's.
    pub fn swap(&mut self, to: Register, bits: i32) {
        self.push(instruction(TO_BIG_ENDIAN, to as u8, 0, 0, bits));
        // Before Linux 6.18 the verifier takes what was swapped for any 64-bit number, so bounds
        // must be shown again.
        match bits {
            16 => self.compute(Operation::And, to, 0xffff),
            32 => self.compute_32(Operation::Move, to, to),
            _ => {}
        }
    }

    /// `to = *(from + offset)`, without sign.
    pub fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) {
        self.push(instruction(LOAD | size as u8, to as u8, from as u8, offset, 0));
    }
    /// `*(to + offset) = what`.
    pub fn store(&mut self, size: Size, to: Register, offset: i16, what: impl Into<Operand>) {
        self.push(match what.into() {
            Operand::Register(from) => instruction(STORE | size as u8, to as u8, from as u8, offset, 0),
            Operand::Number(number) => instruction(STORE_NUMBER | size as u8, to as u8, 0, offset, number),
        });
    }

    /// `*(to + offset) += what`, of 64 bits, at once for all processors.
    pub fn add_atomically(&mut self, to: Register, offset: i16, what: Register) {
        self.push(instruction(ATOMIC, to as u8, what as u8, offset, 0));
    }

    /// `to` = where the only value of an array is, and `offset` bytes further.
    pub fn value(&mut self, to: Register, array: i32, offset: i32) {
        self.push(instruction(LOAD_64, to as u8, VALUE_BY_DESCRIPTOR, 0, array));
        self.push(instruction(0, 0, 0, 0, offset));
    }
    /// `to` = a map, for calls.
    pub fn map(&mut self, to: Register, map: i32) {
        self.push(instruction(LOAD_64, to as u8, MAP_BY_DESCRIPTOR, 0, map));
        self.push(instruction(0, 0, 0, 0, 0));
    }

    /// Continues at `label` in any case.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.program.len(), label));
        self.push(instruction(JUMP, 0, 0, 0, 0));
    }
    /// Goes to `label` if `register TEST with`.
    pub fn jump_if(&mut self, test: Test, register: Register, with: impl Into<Operand>, label: Label) {
        self.jumps.push((self.program.len(), label));
        let (code, to) = (JUMP | test as u8, register as u8);
        self.push(match with.into() {
            Operand::Register(from) => instruction(code | FROM_REGISTER, to, from as u8, 0, 0),
            Operand::Number(number) => instruction(code, to, 0, 0, number),
        });
    }
    /// `R0` = what one of the kernel's functions answers, by its number.
    pub fn call(&mut self, function: i32) {
        self.push(instruction(CALL, 0, 0, 0, function));
    }
    /// Ends the program with the answer in `R0`.
    pub fn exit(&mut self) {
        self.push(instruction(EXIT, 0, 0, 0, 0));
    }

    /// The program, with each jump's distance to its label filled in.
    pub fn finish(mut self) -> Result<Vec<Instruction>, NotAssembled> {
        for (from, label) in self.jumps {
            let to = self.places[label.0].ok_or(NotAssembled::Unplaced(label))?;
            let distance = i16::try_from(to as i64 - from as i64 - 1);
            let distance = distance.map_err(|_| NotAssembled::TooFar(label))?.to_ne_bytes();
            self.program[from][2..4].copy_from_slice(&distance);
        }
        Ok(self.program)
    }

    fn arithmetic(&mut self, width: u8, operation: Operation, to: Register, with: Operand) {
        let (code, to) = (width | operation as u8, to as u8);
        self.push(match with {
            Operand::Register(from) => instruction(code | FROM_REGISTER, to, from as u8, 0, 0),
            Operand::Number(number) => instruction(code, to, 0, 0, number),
        });
    }

    fn push(&mut self, instruction: Instruction) {
        self.program.push(instruction);
    }
}

#[cfg(test)]
mod tests {
    use super::Register::*;
    use super::*;

    #[test]
    fn a_program_is_what_the_instruction_set_says() {
        let mut a = Assembler::default();
        let end = a.label();
        a.load(Size::Half, R2, R1, 12);
        a.swap(R2, 16);
        a.jump_if(Test::NotEqual, R2, 0x0800, end);
        a.compute(Operation::Add, R2, R3);
        a.compute_32(Operation::ShiftRight, R2, 3);
        a.store(Size::Double, R10, -8, R2);
        a.store(Size::Byte, R10, -9, 7);
        a.value(R4, 9, 64);
        a.place(end);
        a.set(R0, 2);
        a.exit();
        let expected: [u64; 12] = [
            0x0000_0000_000c_1269, // r2 = *(u16 *)(r1 + 12)
            0x0000_0010_0000_02dc, // r2 = be16 r2
            0x0000_ffff_0000_0257, // r2 &= 0xffff
            0x0000_0800_0006_0255, // if r2 != 0x800 goto +6
            0x0000_0000_0000_320f, // r2 += r3
            0x0000_0003_0000_0274, // w2 >>= 3
            0x0000_0000_fff8_2a7b, // *(u64 *)(r10 - 8) = r2
            0x0000_0007_fff7_0a72, // *(u8 *)(r10 - 9) = 7
            0x0000_0009_0000_2418, // r4 = value of map 9 …
            0x0000_0040_0000_0000, // … + 64
            0x0000_0002_0000_00b7, // r0 = 2
            0x0000_0000_0000_0095, // exit
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(a.finish().unwrap(), expected.map(u64::to_le_bytes));
        }
    }

    #[test]
    fn jumps_go_backward_too_and_to_no_place_that_is_not_there() {
        let mut a = Assembler::default();
        let start = a.label();
        a.place(start);
        a.jump(start);
        assert_eq!(a.finish().unwrap()[0][2..4], (-1i16).to_ne_bytes());
        let mut a = Assembler::default();
        let nowhere = a.label();
        a.jump(nowhere);
        assert_eq!(a.finish(), Err(NotAssembled::Unplaced(nowhere)));
        let mut a = Assembler::default();
        let far = a.label();
        a.jump(far);
        (0..40_000).for_each(|_| a.set(R0, 0));
        a.place(far);
        assert_eq!(a.finish(), Err(NotAssembled::TooFar(far)));
    }
}
