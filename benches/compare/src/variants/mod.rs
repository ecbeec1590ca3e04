//! The variants that are compared: each lock behind the same small trait, with its own defaults.

pub mod async_redis_lock;
pub mod contender;
pub mod floor;
pub mod kind;
pub mod library;
pub mod line;
pub mod mutex;
pub mod parklock;
pub mod redisson;
pub mod rlock;
pub mod rslock;
pub mod scripts;
pub mod variant;

pub use contender::Contender;
pub use kind::Kind;
pub use library::Library;
pub use variant::Variant;
