//! The slot of a key.

/// The number of a slot.
pub(crate) type HashSlot = u16;

/// The number of slots of a cluster.
pub(crate) const SLOTS: HashSlot = 16_384;

/// The slot of a key: of the part in its first pair of braces, if that is not empty.
pub(crate) fn hash_slot(key: &[u8]) -> HashSlot {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // CLUSTER KEYSLOT of a server.
        assert_eq!(hash_slot(b"foo"), 12_182);
        assert_eq!(hash_slot(b"{foo}:bar"), 12_182);
        assert_eq!(hash_slot(b"a{foo}{bar}"), 12_182);
        assert_eq!(hash_slot(b"{}foo"), crc16(b"{}foo") % SLOTS);
        assert_eq!(hash_slot(b"{foo"), crc16(b"{foo") % SLOTS);
    }
}
