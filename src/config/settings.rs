//! Settings from a file: how serde reads and writes a [`Config`]. `relations.rs` checks them for contradictions.
//!
//! 1. Every field is first read as whatever type it has, and then converted. So each error names its field, in every
//!    format.
//! 2. All settings are checked together before anybody gets them, by the same check as at connecting.
//! 3. Secrets are read and never written.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::config::{Config, HandOff, Layout, Replicas};

/// The word for [`Replicas::Connected`].
const CONNECTED: &str = "connected";

/// Where to connect to, and how to behave: the parklock section of a service's configuration file.
///
/// ```
/// let file = r#"
///     url = "redis://127.0.0.1:6379"
///
///     [config]
///     watchdog_timeout = "10s"
///     max_hold = "5m"
/// "#;
/// let parklock::Settings { url, config, .. } = toml::from_str(file).unwrap();
/// // let client = parklock::Client::connect_with(url, config).await?;
/// # let _ = (url, config);
/// ```
///
/// Each field of `config` has the name of a setter of [`Config`]. Durations are strings such as `"30s"`, `"500ms"` or
/// `"1m 30s"`. A file cannot contain code: set [`Config::credentials`], certificates and labels on `config` after
/// reading it.
///
/// # Errors
/// Reading fails if a field is unknown, has the wrong type, or contradicts another field. The error names the field.
/// The relations between fields are those that [`Client::connect_with`](crate::Client::connect_with) checks.
#[derive(Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Settings {
    /// The URL: see [`Client::connect`](crate::Client::connect).
    pub url: String,
    /// How the client behaves. Optional.
    #[serde(default)]
    pub config: Config,
}

/// Keeps the password in the URL out of logs.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.split_once("://").map_or("", |(scheme, _)| scheme);
        f.debug_struct("Settings")
            .field("url", &format_args!("{scheme}://.."))
            .field("config", &self.config)
            .finish()
    }
}

/// Missing settings keep their defaults.
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let config = Fields::deserialize(deserializer)?.applied().map_err(de::Error::custom)?;
        config.check().map_err(de::Error::custom)?;
        Ok(config)
    }
}

/// The settings that a file can hold. Settings that are derived from others are written only if they were set.
impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let times = [
            ("watchdog_timeout", Some(self.watchdog_timeout)),
            ("max_hold", self.max_hold),
            ("connect_timeout", Some(self.connect_timeout)),
            ("start_timeout", Some(self.start_timeout)),
            ("response_timeout", self.response_timeout),
            ("ride_out", self.ride_out),
            ("max_park", Some(self.max_park)),
            ("waiter_ttl", self.waiter_ttl),
            ("pickup_timeout", self.pickup_timeout),
            ("subscription_linger", Some(self.subscription_linger)),
            ("ack_timeout", self.ack_timeout),
            ("keep", Some(self.keep)),
            ("session", self.session),
        ];
        for (field, time) in times {
            if let Some(time) = time {
                map.serialize_entry(field, &Written(time))?;
            }
        }
        // TOML has no greater number, and no client has as many callers.
        let max_waiters = i64::try_from(self.max_waiters).unwrap_or(i64::MAX);
        map.serialize_entry("max_waiters", &max_waiters)?;
        match self.replicas {
            Replicas::Count(count) => map.serialize_entry("replicas", &count)?,
            Replicas::Connected => map.serialize_entry("replicas", CONNECTED)?,
        }
        map.serialize_entry("layout", layout_word(self.layout))?;
        map.serialize_entry("plain_channels", &self.plain_channels)?;
        if let Some(app) = &self.describe {
            map.serialize_entry("describe", app)?;
        }
        if let Some(namespace) = self.in_namespace() {
            map.serialize_entry("namespace", namespace)?;
        }
        map.serialize_entry("hand_off", &self.hand_off)?;
        map.end()
    }
}

impl Serialize for HandOff {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("max_consecutive", &self.max_consecutive)?;
        map.serialize_entry("max_time", &Written(self.max_time))?;
        map.end()
    }
}

/// Makes the fields of a file, before conversion. Each is listed with the name of its setter, or of its field of [`HandOff`], and
/// with the kind of its value. `Serialize` for [`Config`] has to write it too.
macro_rules! fields {
    (Config { $($field:ident: $kind:ident,)+ } HandOff { $($part:ident: $part_kind:ident,)+ }) => {
        #[derive(Default, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct Fields {
            $($field: Option<Given>,)+
            hand_off: HandOffFields,
        }

        #[derive(Default, serde::Deserialize)]
        #[serde(
            default,
            deny_unknown_fields,
            expecting = "hand_off = { max_consecutive = 256, max_time = \"2ms\" }"
        )]
        struct HandOffFields {
            $($part: Option<Given>,)+
        }

        impl Fields {
            /// The fields for which `read` has a text. It gets the name of each.
            pub(crate) fn read<E>(
                read: impl Fn(&str) -> Result<Option<String>, E>,
            ) -> Result<Self, E> {
                let given = |field| read(field).map(|text| text.map(Given::Text));
                Ok(Self {
                    $($field: given(stringify!($field))?,)+
                    hand_off: HandOffFields {
                        $($part: given(concat!("hand_off_", stringify!($part)))?,)+
                    },
                })
            }

            /// The defaults with these fields, or what is wrong with one of them.
            pub(crate) fn applied(self) -> Result<Config, String> {
                let mut config = Config::default();
                $(if let Some(given) = self.$field {
                    config = config.$field(given.$kind(stringify!($field))?);
                })+
                $(if let Some(given) = self.hand_off.$part {
                    config.hand_off.$part =
                        given.$part_kind(concat!("hand_off.", stringify!($part)))?;
                })+
                Ok(config)
            }
        }
    };
}

fields! {
    Config {
        watchdog_timeout: time,
        max_hold: time,
        connect_timeout: time,
        start_timeout: time,
        response_timeout: time,
        ride_out: time,
        max_park: time,
        waiter_ttl: time,
        pickup_timeout: time,
        subscription_linger: time,
        ack_timeout: time,
        keep: time,
        session: time,
        max_waiters: number,
        replicas: replicas,
        layout: layout,
        plain_channels: truth,
        describe: text,
        namespace: text,
    }
    HandOff {
        max_consecutive: number,
        max_time: time,
    }
}

/// The value of a field.
enum Given {
    Text(String),
    Number(u64),
    Truth(bool),
    /// None of these: its text.
    Other(String),
}

impl Given {
    fn time(&self, field: &str) -> Result<Duration, String> {
        let wrong = || format!("{field} must be a time such as \"30s\" or \"500ms\", not {self}");
        match self {
            Self::Text(text) => humantime::parse_duration(text).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }

    fn text(self, field: &str) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(format!("{field} must be a string, not {self}")),
        }
    }

    fn number<N: TryFrom<u64>>(&self, field: &str) -> Result<N, String> {
        let number = match self {
            Self::Number(number) => N::try_from(*number).ok(),
            // In variables of the environment everything is text.
            Self::Text(text) => text.parse().ok().and_then(|number: u64| N::try_from(number).ok()),
            _ => None,
        };
        number.ok_or_else(|| {
            format!("{field} must be a whole number that is not too large, not {self}")
        })
    }

    fn replicas(&self, field: &str) -> Result<Replicas, String> {
        match self {
            Self::Text(text) if text == CONNECTED => Ok(Replicas::Connected),
            _ => self.number(field).map(Replicas::Count).map_err(|_| {
                format!(
                    "{field} must be {CONNECTED:?}, or a whole number that is not too large, not {self}"
                )
            }),
        }
    }

    fn truth(&self, field: &str) -> Result<bool, String> {
        match self {
            Self::Truth(truth) => Ok(*truth),
            Self::Text(text) if matches!(&**text, "true" | "false") => Ok(text == "true"),
            _ => Err(format!("{field} must be true or false, not {self}")),
        }
    }

    fn layout(&self, field: &str) -> Result<Layout, String> {
        let known = [Layout::Native, Layout::Redisson];
        let found = known.into_iter().find(|layout| match self {
            Self::Text(text) => text == layout_word(*layout),
            _ => false,
        });
        found.ok_or_else(|| format!("{field} must be \"native\" or \"redisson\", not {self}"))
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Truth(truth) => write!(f, "{truth}"),
            Self::Other(other) => f.write_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Given;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number, true or false")
            }

            fn visit_str<E>(self, text: &str) -> Result<Given, E> {
                Ok(Given::Text(text.to_owned()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Given, E> {
                Ok(Given::Number(number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Given, E> {
                let other = |_| Given::Other(number.to_string());
                Ok(u64::try_from(number).map_or_else(other, Given::Number))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Given, E> {
                Ok(Given::Other(number.to_string()))
            }

            fn visit_bool<E>(self, truth: bool) -> Result<Given, E> {
                Ok(Given::Truth(truth))
            }

            fn visit_unit<E>(self) -> Result<Given, E> {
                Ok(Given::Other("nothing".to_owned()))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Given, A::Error> {
                while seq.next_element::<de::IgnoredAny>()?.is_some() {}
                Ok(Given::Other("a list".to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Given, A::Error> {
                while map.next_entry::<de::IgnoredAny, de::IgnoredAny>()?.is_some() {}
                Ok(Given::Other("a table".to_owned()))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A duration as it is written in a file.
struct Written(Duration);

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

fn layout_word(layout: Layout) -> &'static str {
    match layout {
        Layout::Native => "native",
        Layout::Redisson => "redisson",
    }
}
