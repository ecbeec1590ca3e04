//! The quantities of the report: what each is called and how a value of it is written.

use serde::Serialize;

/// One column of a table. Values are in seconds, bytes, or plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    Clients,
    PairsPerSecond,
    Jain,
    LeastOverGreatest,
    LeastOverMean,
    WaitMean,
    WaitP50,
    WaitP99,
    WaitMax,
    WaitMaxInRotations,
    WaitRoundTrips,
    Unfinished,
    ScriptsPerPair,
    CommandsPerPair,
    RequestsPerPair,
    PushesPerPair,
    ScriptTime,
    LongestScript,
    LongScripts,
    ClientCpuPerPair,
    ServerCpuPerPair,
    RoundTrip,
    HandOverP50,
    HandOverP99,
    HandOverRoundTrips,
    Requests,
    RequestsPerName,
    CommandsPerName,
    BytesReplicated,
    Served,
    AllThrough,
    ThroughPerSecond,
    Overtaken,
    Errors,
    ClientCore,
    ServerCore,
    BytesPerWaiter,
    BytesPerLock,
    ScriptsPerRenewal,
    LatenessP99,
    LocksLost,
    MemoryAtTenth,
    MemoryAtEnd,
    MemoryGrowth,
    MemoryLateGrowth,
    MemoryPeak,
    KeysLeft,
    ChannelsLeft,
    OnOnePairsPerSecond,
    OverOnePrimary,
    OnOneClientCore,
    OnOneServerCore,
    LeastPerSecond,
    Stall,
    StallOfMove,
    StallOfFailover,
    StallOfKill,
    OverKill,
    NodesReplaced,
}

/// How a value is written.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Bytes,
    Percent,
    Plain,
}

impl Quantity {
    pub const fn title(self) -> &'static str {
        self.described().0
    }

    /// The value as it stands in a table, with its unit.
    pub fn show(self, value: f64) -> String {
        match self.described().1 {
            Unit::Seconds => scaled(value * 1e9, 1000.0, &[" ns", " µs", " ms", " s"]),
            Unit::Bytes => scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB"]),
            Unit::Percent => format!("{} %", digits(value * 100.0)),
            Unit::Plain => scaled(value, 1000.0, &["", " k", " M", " G"]),
        }
    }

    const fn described(self) -> (&'static str, Unit) {
        match self {
            Self::Clients => ("clients", Unit::Plain),
            Self::PairsPerSecond => ("pairs/s", Unit::Plain),
            Self::Jain => ("Jain", Unit::Plain),
            Self::LeastOverGreatest => ("least/greatest share", Unit::Plain),
            Self::LeastOverMean => ("least/mean client", Unit::Plain),
            Self::WaitMean => ("mean wait", Unit::Seconds),
            Self::WaitP50 => ("p50 wait", Unit::Seconds),
            Self::WaitP99 => ("p99 wait", Unit::Seconds),
            Self::WaitMax => ("max wait", Unit::Seconds),
            Self::WaitMaxInRotations => ("max wait in rotations", Unit::Plain),
            Self::WaitRoundTrips => ("p50 wait in RTT", Unit::Plain),
            Self::Unfinished => ("never served", Unit::Plain),
            Self::ScriptsPerPair => ("scripts/pair", Unit::Plain),
            Self::CommandsPerPair => ("commands/pair", Unit::Plain),
            Self::RequestsPerPair => ("requests/pair", Unit::Plain),
            Self::PushesPerPair => ("pushes/pair", Unit::Plain),
            Self::ScriptTime => ("server/script", Unit::Seconds),
            Self::LongestScript => ("longest script", Unit::Seconds),
            Self::LongScripts => ("scripts over 2 ms", Unit::Plain),
            Self::ClientCpuPerPair => ("client CPU/pair", Unit::Seconds),
            Self::ServerCpuPerPair => ("server CPU/pair", Unit::Seconds),
            Self::RoundTrip => ("RTT p50", Unit::Seconds),
            Self::HandOverP50 => ("hand-over p50", Unit::Seconds),
            Self::HandOverP99 => ("hand-over p99", Unit::Seconds),
            Self::HandOverRoundTrips => ("hand-over p50 in RTT", Unit::Plain),
            Self::Requests => ("requests", Unit::Plain),
            Self::RequestsPerName => ("requests/name/5 s", Unit::Plain),
            Self::CommandsPerName => ("commands/name/5 s", Unit::Plain),
            Self::BytesReplicated => ("replicated", Unit::Bytes),
            Self::Served => ("served", Unit::Plain),
            Self::AllThrough => ("all through in", Unit::Seconds),
            Self::ThroughPerSecond => ("through/s", Unit::Plain),
            Self::Overtaken => ("overtaken", Unit::Plain),
            Self::Errors => ("errors", Unit::Plain),
            Self::ClientCore => ("client CPU", Unit::Percent),
            Self::ServerCore => ("server CPU", Unit::Percent),
            Self::BytesPerWaiter => ("memory/waiter", Unit::Bytes),
            Self::BytesPerLock => ("memory/lock", Unit::Bytes),
            Self::ScriptsPerRenewal => ("calls/lock/period", Unit::Plain),
            Self::LatenessP99 => ("lateness p99", Unit::Seconds),
            Self::LocksLost => ("locks lost", Unit::Plain),
            Self::MemoryAtTenth => ("memory at a tenth", Unit::Bytes),
            Self::MemoryAtEnd => ("memory at the end", Unit::Bytes),
            Self::MemoryGrowth => ("growth", Unit::Percent),
            Self::MemoryLateGrowth => ("growth in the second half", Unit::Percent),
            Self::MemoryPeak => ("peak", Unit::Bytes),
            Self::KeysLeft => ("keys left", Unit::Plain),
            Self::ChannelsLeft => ("channels left", Unit::Plain),
            Self::OnOnePairsPerSecond => ("on one server", Unit::Plain),
            Self::OverOnePrimary => ("over one server", Unit::Plain),
            Self::OnOneClientCore => ("client CPU on one server", Unit::Percent),
            Self::OnOneServerCore => ("server CPU on one server", Unit::Percent),
            Self::LeastPerSecond => ("fewest in a second", Unit::Plain),
            Self::Stall => ("longest turn", Unit::Seconds),
            Self::StallOfMove => ("longest turn, slot moved", Unit::Seconds),
            Self::StallOfFailover => ("failed over", Unit::Seconds),
            Self::StallOfKill => ("killed", Unit::Seconds),
            Self::OverKill => ("killed, beyond the servers' own time", Unit::Seconds),
            Self::NodesReplaced => ("nodes replaced", Unit::Plain),
        }
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut units = units.iter();
    let mut unit = units.next();
    while value.abs() >= 0.9995 * step {
        let Some(next) = units.next() else { break };
        value /= step;
        unit = Some(next);
    }
    format!("{}{}", digits(value), unit.copied().unwrap_or_default())
}

/// Three significant digits at the most, small numbers to the thousandth.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 || v == v.round() => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        v if v >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_with_their_unit() {
        assert_eq!(Quantity::WaitP99.show(0.0142), "14.2 ms");
        assert_eq!(Quantity::PairsPerSecond.show(810_300.0), "810 k");
        assert_eq!(Quantity::BytesPerLock.show(1536.0), "1.50 KiB");
        assert_eq!(Quantity::MemoryGrowth.show(0.0042), "0.420 %");
        assert_eq!(Quantity::LocksLost.show(0.0), "0");
    }

    #[test]
    fn a_value_just_below_the_next_unit_is_written_in_it() {
        assert_eq!(Quantity::PairsPerSecond.show(999.9), "1.00 k");
    }
}
