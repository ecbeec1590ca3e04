//! Settings from variables of the environment. They are read as a file is: `settings.rs` says what each may be.

use std::env::{self, VarError};

use crate::config::Config;
use crate::config::settings::{Fields, Settings};
use crate::error::{Error, Result};
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// The variables that may name the server, the first one that has a value. The command line tool reads the same.
const URLS: [&str; 2] = ["PARKLOCK_URL", "REDIS_URL"];

/// What every variable of a setting begins with.
const SETTINGS: &str = "PARKLOCK";

/// What the environment says, or that it is no text.
type Read<'a> = &'a dyn Fn(&str) -> Result<String, VarError>;

impl Settings {
    /// Reads the settings from variables of the environment, as they are now.
    ///
    /// The URL is `PARKLOCK_URL`, or else `REDIS_URL`. Each setting is `PARKLOCK_` and the name of its setter in capitals:
    /// `PARKLOCK_WATCHDOG_TIMEOUT=10s`, `PARKLOCK_NAMESPACE=billing`, `PARKLOCK_HAND_OFF_MAX_TIME=2ms`. For an encrypted URL (feature
    /// `tls`), `PARKLOCK_CA` names a file of certificate authorities, and `PARKLOCK_CERT` and `PARKLOCK_KEY` the files of
    /// a client certificate. The command line tool reads the URL, the namespace and the certificates from the same variables. Empty
    /// variables count as not set, and other variables are ignored, also those whose names begin with `PARKLOCK_`.
    ///
    /// ```no_run
    /// # async fn connected() -> Result<(), parklock::Error> {
    /// use parklock::{Client, Settings};
    ///
    /// let settings = Settings::from_env()?;
    /// let config = settings.config.describe("billing"); // what the program says by itself
    /// let client = Client::connect_with(settings.url, config).await?;
    /// # drop(client);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if neither URL is set, or if a variable has a wrong value or contradicts another one. The error names
    /// the variable.
    pub fn from_env() -> Result<Self> {
        Self::read(&|name| env::var(name))
    }

    fn read(read: Read<'_>) -> Result<Self> {
        let found = URLS.into_iter().find_map(|name| value(read, name).transpose());
        let Some(url) = found.transpose()? else {
            return Err(Error::config(format!("neither {} nor {} is set", URLS[0], URLS[1])));
        };
        let variable = |field: &str| format!("{SETTINGS}_{}", field.to_uppercase());
        let fields = Fields::read(|field| value(read, &variable(field)))?;
        let config = fields.applied().map_err(named)?;
        config.check().map_err(|error| match error {
            Error::Config { reason } => named(reason),
            error => error,
        })?;
        let config = encrypted(config, &url, read)?;
        Ok(Self { url, config })
    }
}

#[cfg(feature = "tls")]
fn encrypted(config: Config, url: &str, read: Read<'_>) -> Result<Config> {
    if !url.starts_with("rediss") {
        return Ok(config);
    }
    let [ca, cert, key] =
        ["PARKLOCK_CA", "PARKLOCK_CERT", "PARKLOCK_KEY"].map(|name| value(read, name));
    let tls = ca?.into_iter().fold(Tls::new(), Tls::ca_file);
    Ok(config.tls(match (cert?, key?) {
        (Some(cert), Some(key)) => tls.identity_files(cert, key),
        (None, None) => tls,
        _ => return Err(Error::config("PARKLOCK_CERT and PARKLOCK_KEY must be set together")),
    }))
}

#[cfg(not(feature = "tls"))]
fn encrypted(config: Config, _: &str, _: Read<'_>) -> Result<Config> {
    Ok(config)
}

/// The value of a variable, if it has one.
fn value(read: Read<'_>, name: &str) -> Result<Option<String>> {
    match read(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::config(format!("{name} is not UTF-8"))),
    }
}

/// What is wrong with a setting, by the name of its variable: each such text begins with the name of the setting.
fn named(wrong: String) -> Error {
    let (setting, what) = wrong.split_once(' ').unwrap_or((&wrong, "is wrong"));
    let setting = setting.replace('.', "_").to_uppercase();
    Error::config(format!("{SETTINGS}_{setting} {what}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::HandOff;

    /// What is read from these variables, and no others.
    fn read(variables: &[(&str, &str)]) -> Result<Settings> {
        Settings::read(&|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned()).ok_or(VarError::NotPresent)
        })
    }

    fn refusal(name: &str, value: &str) -> String {
        read(&[("PARKLOCK_URL", "redis://h"), (name, value)])
            .expect_err("it is refused")
            .to_string()
    }

    #[test]
    fn every_setting_has_a_variable() {
        let all = [
            ("PARKLOCK_URL", "redis://h"),
            ("PARKLOCK_WATCHDOG_TIMEOUT", "1m 30s"),
            ("PARKLOCK_MAX_WAITERS", "5"),
            ("PARKLOCK_PLAIN_CHANNELS", "true"),
            ("PARKLOCK_NAMESPACE", "billing"),
            ("PARKLOCK_HAND_OFF_MAX_CONSECUTIVE", "7"),
            ("PARKLOCK_RIDE_OUT", ""), // not set
            ("PARKLOCK_TOKEN", "3"),   // the tool's, for its command
        ];
        let Settings { url, config } = read(&all).expect("it is understood");
        let same = Config::default()
            .watchdog_timeout(Duration::from_secs(90))
            .max_waiters(5)
            .plain_channels(true)
            .namespace("billing")
            .hand_off(HandOff { max_consecutive: 7, ..HandOff::default() });
        assert_eq!((&*url, format!("{config:?}")), ("redis://h", format!("{same:?}")));
    }

    #[test]
    fn the_url_is_that_of_parklock_or_else_that_of_redis_and_must_be_there() {
        let both = [("PARKLOCK_URL", "redis://a"), ("REDIS_URL", "redis://b")];
        assert_eq!(read(&both).expect("two").url, "redis://a");
        assert_eq!(read(&both[1..]).expect("one").url, "redis://b");
        let none = read(&[("PARKLOCK_URL", "")]).expect_err("none").to_string();
        assert!(none.contains("PARKLOCK_URL") && none.contains("REDIS_URL"), "{none}");
    }

    #[test]
    fn an_error_names_the_variable() {
        for (name, value, what) in [
            (
                "PARKLOCK_WATCHDOG_TIMEOUT",
                "30",
                "must be a time such as \"30s\" or \"500ms\", not \"30\"",
            ),
            ("PARKLOCK_MAX_WAITERS", "many", "must be a whole number"),
            ("PARKLOCK_HAND_OFF_MAX_TIME", "2", "must be a time"),
            ("PARKLOCK_LAYOUT", "jedis", "must be \"native\" or \"redisson\""),
            // Relations, by the check of `connect_with`.
            ("PARKLOCK_MAX_HOLD", "1s", "must be at least watchdog_timeout"),
            ("PARKLOCK_NAMESPACE", "a b", "must have no blanks"),
        ] {
            let told = refusal(name, value);
            assert!(told.contains(&format!("{name} {what}")), "{told}");
        }
        let unreadable = Settings::read(&|name| match name {
            "PARKLOCK_KEEP" => Err(VarError::NotUnicode(Default::default())),
            "PARKLOCK_URL" => Ok("redis://h".to_owned()),
            _ => Err(VarError::NotPresent),
        });
        let told = unreadable.expect_err("it is no text").to_string();
        assert!(told.contains("PARKLOCK_KEEP is not UTF-8"), "{told}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificates_are_for_an_encrypted_url() {
        let of = |url, variables: &[_]| read(&[&[("PARKLOCK_URL", url)], variables].concat());
        let files = [("PARKLOCK_CA", "a"), ("PARKLOCK_CERT", "b"), ("PARKLOCK_KEY", "c")];
        assert!(of("rediss://h", &files).expect("all three").config.tls.is_some());
        assert!(of("redis://h", &files).expect("not encrypted").config.tls.is_none());
        let told = of("rediss://h", &files[..2]).expect_err("half of them").to_string();
        assert!(told.contains("PARKLOCK_KEY"), "{told}");
    }
}
