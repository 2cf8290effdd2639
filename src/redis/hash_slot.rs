//! The slot of a key on a cluster, as the cluster specification of Redis defines it.

/// Operations of one call have one slot: that of their keys on a cluster and behind a proxy, always the same at a single server.
pub type HashSlot = u16;

/// The number of slots of a cluster.
pub(super) const SLOTS: HashSlot = 16_384;

/// The slot of a key: the checksum of its hash tag, if it has one, or of the whole key.
pub(crate) fn hash_slot(key: &[u8]) -> HashSlot {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// The bytes between the first `{` and the first `}` behind it, if there are any.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let (_, rest) = key.split_at(key.iter().position(|byte| *byte == b'{')? + 1);
    let end = rest.iter().position(|byte| *byte == b'}')?;
    (end > 0).then(|| &rest[..end])
}

/// CRC-16/XMODEM: the polynomial 0x1021, the highest bit first.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (crc << 8) ^ OF_BYTES[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// The checksum of each byte.
static OF_BYTES: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = (crc << 1) ^ (0x1021 * (crc >> 15));
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The first vector is the cluster specification's.
    #[test]
    fn checksums_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
        assert_eq!(crc16(b"A"), 0x58e5);
        assert_eq!(crc16(&[0xff; 4]), 0x99cf);
    }

    /// The answers of `CLUSTER KEYSLOT` of Redis 7.0.
    #[test]
    fn slots_are_those_of_a_server() {
        let of_keys: [(&[u8], HashSlot); 20] = [
            (b"", 0),
            (b"foo", 12_182),
            (b"order:42", 8_691),
            (b"redisson_lock__channel:{order:42}", 8_691),
            (b"{user1000}.following", 3_443),
            (b"user1000", 3_443),
            (b"foo{}{bar}", 8_363),
            (b"foo{{bar}}zap", 4_015),
            (b"foo{bar}{zap}", 5_061),
            (b"{}", 15_257),
            (b"{", 4_092),
            (b"{{}", 4_092),
            (b"{}}", 14_790),
            (b"}{a}", 15_495),
            (b"{a}b}", 15_495),
            (b"a}b{c", 13_587),
            (b"{a", 10_276),
            (b"a{", 14_311),
            (b"{\x00\xff}x", 7_920),
            (b"\xc3\xa4\xf6\xbc", 5_652),
        ];
        for (key, slot) in of_keys {
            assert_eq!(hash_slot(key), slot, "{}", key.escape_ascii());
        }
    }
}
