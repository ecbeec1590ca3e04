//! The primitives, one per file, and the handles that they are made of.

mod condition;
mod handle;
mod latch;
mod lock;
mod multi_lock;
mod red_lock;
mod redisson;
mod reentrant_lock;
mod reentrant_rw_lock;
mod retry;
mod rw_handle;
mod rw_lock;
mod semaphore;

pub use condition::Condition;
pub use latch::CountDownLatch;
pub use lock::Lock;
pub use multi_lock::MultiLock;
pub use red_lock::RedLock;
pub use redisson::Redisson;
pub use reentrant_lock::ReentrantLock;
pub use reentrant_rw_lock::ReentrantRwLock;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
