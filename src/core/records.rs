//! Records by their numbers. A number is used again once its record is freed.

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Records<T> {
    records: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Records<T> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Records<T> {
    pub fn add(&mut self, record: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.records[number as usize] = Some(record);
                number
            }
            None => {
                self.records.push(Some(record));
                self.records.len() as u32 - 1
            }
        }
    }

    pub fn remove(&mut self, number: u32) -> Option<T> {
        let record = self.records.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(record)
    }

    pub fn get(&self, number: u32) -> Option<&T> {
        self.records.get(number as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.records.get_mut(number as usize)?.as_mut()
    }

    /// In the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = (u32, &T)> {
        let records = (0..).zip(&self.records);
        records.filter_map(|(number, record)| Some((number, record.as_ref()?)))
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.records.iter_mut().flatten()
    }

    /// Forgets which numbers were used, and in which order they were freed.
    #[cfg(any(test, feature = "explorer"))]
    pub fn forget(&mut self) {
        while self.records.last().is_some_and(Option::is_none) {
            self.records.pop();
        }
        let numbers = (0..self.records.len() as u32).rev();
        self.free = numbers
            .filter(|number| self.get(*number).is_none())
            .collect();
    }
}
