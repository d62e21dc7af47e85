//! Counts, each processor's its own, so that plain additions do.
use super::super::flows::ESTABLISHED;
use super::super::layout::*;
use super::receive::buffer;
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

const GET_SMP_PROCESSOR_ID: i32 = 8;

/// `R1` = where this processor's counts begin.
fn to_counts(w: &mut ProgramWriter<'_>) {
    w.a.call(GET_SMP_PROCESSOR_ID);
    w.a.compute(And, R0, MOST_PROCESSORS as i32 - 1);
    w.a.compute(ShiftLeft, R0, (8 * COUNT_WORDS).ilog2() as i32);
    w.locate_element(&w.memory.arrays, "counts", R0, R1);
    w.a.set(R1, R0);
}

/// Adds to a word behind `R1`; spoils `R3`.
fn add_to_word(w: &mut ProgramWriter<'_>, at: i16, what: impl Into<artery_device::bpf::Operand>) {
    w.a.load(Size::Double, R3, R1, at);
    w.a.compute(Add, R3, what);
    w.a.store(Size::Double, R1, at, R3);
}

/// Counts a frame that comes by its port and goes out by the hop in `R6`.
pub(super) fn write_forwarded(w: &mut ProgramWriter<'_>) {
    to_counts(w);
    w.a.set(R5, R1);
    measure_frame(w);
    add_forwarded(w);
}

/// The same for a multi-buffer frame, whose packet is all that it carries.
pub(super) fn write_forwarded_multi_buffer(w: &mut ProgramWriter<'_>) {
    to_counts(w);
    w.a.set(R5, R1);
    w.a.set(R4, R9);
    w.a.compute(Subtract, R4, R7);
    w.load_slot(R1, Slot::Length);
    w.a.compute(Add, R4, R1);
    w.a.set(R0, 1);
    add_forwarded(w);
}

/// Adds `R0` frames of `R4` bytes to the counts in `R5` of both ports.
fn add_forwarded(w: &mut ProgramWriter<'_>) {
    w.a.set(R1, R5);
    w.load_slot(R2, Slot::Port);
    add_to_port(w, 0);
    if w.has_flows() {
        w.load_slot(R2, Slot::Properties);
        w.a.compute(ShiftRight, R2, ESTABLISHED.ilog2() as i32);
        w.a.compute(And, R2, 1);
        w.a.compute(Multiply, R2, R0);
        add_to_word(w, 8 * ESTABLISHED_COUNT as i16, R2);
    }
    w.a.set(R1, R5);
    w.a.load(Size::Word, R2, R6, 4 * HOP_PORTS as i16);
    w.a.compute(ShiftRight, R2, 16);
    add_to_port(w, 16);
}

/// `R4` = bytes of the frame, `R0` = frames that it is.
fn measure_frame(w: &mut ProgramWriter<'_>) {
    match w.at {
        ProgramHook::Xdp => {
            w.a.set(R4, R8);
            w.a.compute(Subtract, R4, R7);
            w.a.set(R0, 1);
        }
        ProgramHook::Tc => {
            let is_counted = w.a.label();
            w.load_slot(R1, Slot::Context);
            w.a.load(Size::Word, R4, R1, buffer::LENGTH);
            match w.has_tunnels() {
                // The kernel counts them again behind a tunnel's header.
                true => w.load_slot(R0, Slot::Segments),
                false => w.a.load(Size::Word, R0, R1, buffer::SEGMENTS),
            }
            w.a.jump_if(NotEqual, R0, 0, is_counted);
            w.a.set(R0, 1);
            w.a.place(is_counted);
        }
    }
    if w.has_tunnels() {
        w.load_slot(R1, Slot::Tunnel);
        w.a.compute(Subtract, R4, R1);
    }
}

/// Adds `R0` frames of `R4` bytes to the port in `R2`.
fn add_to_port(w: &mut ProgramWriter<'_>, at: i16) {
    w.a.compute(And, R2, MOST_PORTS as i32 - 1);
    w.a.compute(ShiftLeft, R2, (8 * WORDS_OF_PORT).ilog2() as i32);
    w.a.compute(Add, R1, R2);
    add_to_word(w, at, R0);
    add_to_word(w, at + 8, R4);
}

/// Counts a frame for each reason and hands it to the kernel.
pub(super) fn write_kernel(w: &mut ProgramWriter<'_>) {
    let counted = w.a.label();
    // The verifier takes no instruction that nothing leads to.
    let reached = Reason::ALL.map(|reason| is_reached(w, reason).then_some(reason));
    for reason in reached.into_iter().flatten() {
        w.a.place(w.to_kernel(reason));
        w.a.set(R6, 8 * (REASON_COUNTS + reason as usize) as i32);
        w.a.jump(counted);
    }
    w.a.place(counted);
    copy::write_kernel(w);
    to_counts(w);
    w.a.compute(Add, R1, R6);
    // The port that it came by, whatever its VLAN: there may be none of that number.
    add_to_word(w, of_port(w), 1);
    w.a.set(R0, w.at.pass_code());
    w.a.exit();
}

/// Whether the program has a jump to where frames go to the kernel for a reason.
fn is_reached(w: &ProgramWriter<'_>, reason: Reason) -> bool {
    match reason {
        Reason::MultiBuffer => receive::sees_buffers(w),
        Reason::NotEstablished | Reason::NoRoom | Reason::Closing | Reason::OtherPort => w.has_flows(),
        Reason::Rule | Reason::Window => w.has_flows(),
        Reason::Renewal => w.has_flows() || w.bridge.is_some(),
        Reason::NotLearned => w.bridge.is_some(),
        Reason::Tunnel => w.has_tunnels(),
        _ => true,
    }
}

/// Counts a frame that could not be sent, and is no more what it was.
pub(super) fn write_lost(w: &mut ProgramWriter<'_>) {
    to_counts(w);
    add_to_word(w, of_port(w) + 8 * LOST_COUNT as i16, 1);
    w.a.set(R0, w.at.drop_code());
    w.a.exit();
}

/// Where the counts of the program's port are, in bytes.
fn of_port(w: &ProgramWriter<'_>) -> i16 {
    (8 * WORDS_OF_PORT * w.port as usize) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_ports_are_within_the_reach_of_an_instruction() {
        assert!(8 * COUNT_WORDS <= i16::MAX as usize + 1 && COUNT_WORDS.is_power_of_two());
        assert!(WORDS_OF_PORT.is_power_of_two());
    }
}
