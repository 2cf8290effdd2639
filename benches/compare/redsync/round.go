package main

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
)

// result of a round, as the protocol has it.
type result struct {
	Count   int     `json:"count"`
	All     int     `json:"all"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

type task struct {
	all  int
	took []time.Duration
	err  error
}

// round has tasks take and release the locks that lock makes for them.
func round(tasks int, seconds, warmUp time.Duration, lock func(task int) *redsync.Mutex) (any, error) {
	begin := time.Now().Add(warmUp)
	end := begin.Add(seconds)
	done := make([]task, tasks)
	var running sync.WaitGroup
	for i := range done {
		running.Add(1)
		go func() {
			defer running.Done()
			done[i].turns(lock(i), begin, end)
		}()
	}
	running.Wait()
	var took []time.Duration
	result := result{Seconds: seconds.Seconds()}
	for _, task := range done {
		if task.err != nil {
			return nil, task.err
		}
		result.All += task.all
		took = append(took, task.took...)
	}
	if len(took) == 0 {
		return nil, errors.New("no pair began and ended within the measured time")
	}
	slices.Sort(took)
	result.Count = len(took)
	result.P50 = micros(took[len(took)*50/100])
	result.P99 = micros(took[len(took)*99/100])
	return result, nil
}

func (t *task) turns(lock *redsync.Mutex, begin, end time.Time) {
	for from := time.Now(); from.Before(end); {
		if t.err = lock.Lock(); t.err != nil {
			return
		}
		if t.err = unlock(lock); t.err != nil {
			return
		}
		to := time.Now()
		t.all++
		if !from.Before(begin) && !to.After(end) {
			t.took = append(t.took, to.Sub(from))
		}
		from = to
	}
}

func micros(duration time.Duration) float64 { return float64(duration.Nanoseconds()) / 1e3 }
