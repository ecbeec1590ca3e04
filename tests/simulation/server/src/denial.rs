//! What the access list forbids, and how each server says so.

use crate::version::Version;

/// What the access list forbids.
#[derive(Debug)]
pub(crate) enum Denial {
    Command(&'static str),
    Channel(String),
}

impl Denial {
    pub(crate) fn to_client(&self, version: Version) -> String {
        match (self, version) {
            (Self::Command(name), Version::Redis6_2) => {
                format!("NOPERM this user has no permissions to run the '{name}' command or its subcommand")
            }
            (Self::Command(name), Version::Redis7_0) => {
                format!("NOPERM this user has no permissions to run the '{name}' command")
            }
            (Self::Channel(_), Version::Redis6_2 | Version::Redis7_0) => {
                "NOPERM this user has no permissions to access one of the channels used as arguments".into()
            }
            (Self::Channel(_), Version::Redis8_2 | Version::Valkey9_1) => {
                "NOPERM No permissions to access a channel".into()
            }
            (_, Version::Redis8_2 | Version::Valkey9_1) => format!("NOPERM {}", self.recent()),
        }
    }

    pub(crate) fn to_script(&self, version: Version) -> String {
        match (self, version) {
            (Self::Command(_), Version::Redis6_2 | Version::Redis7_0) => {
                "The user executing the script can't run this command or subcommand".into()
            }
            (Self::Channel(_), Version::Redis6_2) => {
                "The user executing the script can't publish to the channel mentioned in the command".into()
            }
            (Self::Channel(_), Version::Redis7_0) => {
                "The user executing the script can't publish to the channel mentioned in the command".into()
            }
            (Self::Channel(_), Version::Redis8_2 | Version::Valkey9_1) => {
                "ACL failure in script: No permissions to access a channel".into()
            }
            (_, Version::Redis8_2 | Version::Valkey9_1) => format!("ACL failure in script: {}", self.recent()),
        }
    }

    fn recent(&self) -> String {
        match self {
            Self::Command(name) => {
                format!("User default has no permissions to run the '{name}' command")
            }
            Self::Channel(channel) => {
                format!("User default has no permissions to access the '{channel}' channel")
            }
        }
    }
}
