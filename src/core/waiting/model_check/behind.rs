//! What a caller knows of the line of a fair lock: who stands right behind it.

/// Which caller of the same client stands right behind in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Behind {
    Nobody,
    Spot(u8),
    /// The caller goes on under another owner field: nobody counts as behind it, and it is behind nobody.
    Moved,
}
