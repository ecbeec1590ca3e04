//! What a process costs: processor time and resident memory, as the operating system counts them.

use std::fs;

use anyhow::{Context, Result};

/// Seconds of processor time that the process has used, in user and kernel mode.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = ticks(&stat).with_context(|| format!("/proc/{pid}/stat reads {stat:?}"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Bytes of the process that lie in memory now.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The most that ever lay in memory.
pub fn peak_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = kib(&status, field).with_context(|| format!("/proc/{pid}/status has no {field}"))?;
    Ok(kib * 1024)
}

/// `utime` and `stime`: the 14th and 15th field. The 2nd is the name, which may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

fn kib(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 90 0 0 0 120 30 0 0 20 0";
        assert_eq!(ticks(stat), Some(150));
    }

    #[test]
    fn memory_is_read_in_kib() {
        assert_eq!(kib("Name:\tx\nVmRSS:\t    5120 kB\n", "VmRSS:"), Some(5120));
    }
}
