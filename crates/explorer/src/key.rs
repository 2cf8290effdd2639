//! What tells states apart: a hash of 64 bits.

use std::hash::{Hash, Hasher};

use crate::{server::Holder, world::World};

/// Mixes what a state hashes into 64 bits.
pub(crate) struct Mixer {
    mixed: u64,
    /// Small words, up to eight, which are mixed at once.
    small: u64,
    count: u32,
}

impl Default for Mixer {
    fn default() -> Self {
        Self {
            mixed: 0x9e37_79b9_7f4a_7c15,
            small: 0,
            count: 0,
        }
    }
}

impl Mixer {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.mixed ^ word) * 0xe703_7ed1_a0b4_28db;
        self.mixed = (product as u64) ^ ((product >> 64) as u64) ^ self.mixed.rotate_left(23);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.small = self.small << 8 | u64::from(word);
        self.count += 1;
        if self.count == 8 {
            self.mix(self.small);
            (self.small, self.count) = (0, 0);
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    /// A length: no list has 256 entries.
    fn write_usize(&mut self, word: usize) {
        self.write_u8(word as u8);
    }

    /// The number of a variant: no enum has 256.
    fn write_isize(&mut self, word: isize) {
        self.write_u8(word as u8);
    }

    fn finish(&self) -> u64 {
        let mut all = Self { ..*self };
        all.mix(self.small << 8 | u64::from(self.count));
        all.mixed
    }
}

/// One key for worlds that differ by the names of the clients. `hash_from` hashes a world with one of them as the first.
pub(crate) fn key(is_symmetric: bool, hash_from: impl Fn(usize, &mut Mixer)) -> u64 {
    let hash = |first| {
        let mut mixer = Mixer::default();
        hash_from(first, &mut mixer);
        mixer.finish()
    };
    match is_symmetric {
        true => hash(0).min(hash(1)),
        false => hash(0),
    }
}

impl World {
    /// Hashes what concerns one client alone.
    pub(crate) fn hash_of(&self, client: usize) -> u64 {
        let mut into = Mixer::default();
        (&self.clients[client], self.known[client]).hash(&mut into);
        let (refuses, is_excused) = (self.refuses[client], self.is_excused[client]);
        (refuses, is_excused, self.in_allowance[client]).hash(&mut into);
        into.finish()
    }

    /// Hashes the world, with `first` as the first client. `clients`: what concerns each alone.
    pub(crate) fn hash_from(&self, first: usize, clients: [u64; 2], into: &mut impl Hasher) {
        let Self {
            clients: _,
            data,
            earlier,
            order,
            known: _,
            refuses: _,
            is_excused: _,
            in_allowance: _,
            budget,
            ticks,
            wrong: _,
        } = self;
        (clients[first], clients[1 - first]).hash(into);
        let seen = |(client, owner): Holder| (client == first as u8, owner);
        for data in [data, &earlier[0], &earlier[1]] {
            (data.holder.map(seen), data.holds, data.left).hash(into);
            for (holder, left) in data.queue.iter() {
                (seen(holder), left).hash(into);
            }
            data.queue.iter().count().hash(into);
        }
        order.iter().for_each(|holder| seen(*holder).hash(into));
        (budget, ticks).hash(into);
    }
}
