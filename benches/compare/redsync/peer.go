package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	// For locks that are held while something else is measured.
	longExpiry  = 10 * time.Minute
	turnsWithin = time.Minute
)

type turn struct {
	when int64
	err  error
}

type peer struct {
	options *redis.Options
	client  *redis.Client
	locks   *redsync.Redsync
	held    *redsync.Mutex
	turns   chan turn
	waiting int
	many    []*redsync.Mutex
	giving  context.CancelFunc
	crowd   sync.WaitGroup
	patient context.Context
}

func newPeer(url string) (*peer, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	p := &peer{options: options, client: client, locks: locksOf(client), turns: make(chan turn, 1)}
	p.patient, p.giving = context.WithCancel(context.Background())
	return p, nil
}

func locksOf(client *redis.Client) *redsync.Redsync { return redsync.New(goredis.NewPool(client)) }

func mutex(locks *redsync.Redsync, name string, options ...redsync.Option) *redsync.Mutex {
	return locks.NewMutex(name, append(options, redsync.WithTries(math.MaxInt))...)
}

func unlock(lock *redsync.Mutex) error {
	released, err := lock.Unlock()
	if err == nil && !released {
		err = fmt.Errorf("%s was no longer held", lock.Name())
	}
	return err
}

func (p *peer) pair(tasks int, seconds, warmUp time.Duration) (any, error) {
	return round(tasks, seconds, warmUp, func(task int) *redsync.Mutex {
		return mutex(p.locks, fmt.Sprintf("bench:redsync:%d", task))
	})
}

func (p *peer) contend(name string, tasks int, seconds, warmUp time.Duration) (any, error) {
	return round(tasks, seconds, warmUp, func(int) *redsync.Mutex { return mutex(p.locks, name) })
}

func (p *peer) hold(name string) (any, error) {
	lock := mutex(p.locks, name, redsync.WithExpiry(longExpiry))
	if err := lock.Lock(); err != nil {
		return nil, err
	}
	p.held = lock
	return true, nil
}

func (p *peer) wait(name string, tasks int) (any, error) {
	for range tasks {
		lock := mutex(p.locks, name)
		go func() {
			if err := lock.Lock(); err != nil {
				p.turns <- turn{err: err}
				return
			}
			when, err := turnEnds(lock)
			p.turns <- turn{when, err}
		}()
	}
	p.waiting += tasks
	return true, nil
}

func (p *peer) free() (any, error) {
	if p.held == nil {
		return nil, errors.New("nothing is held")
	}
	lock := p.held
	p.held = nil
	return turnEnds(lock)
}

func (p *peer) times() (any, error) {
	limit := time.After(turnsWithin)
	times := []int64{}
	for ; p.waiting > 0; p.waiting-- {
		select {
		case turn := <-p.turns:
			if turn.err != nil {
				return nil, turn.err
			}
			times = append(times, turn.when)
		case <-limit:
			return nil, fmt.Errorf("%d tasks did not get the lock in time", p.waiting)
		}
	}
	return times, nil
}

// turnEnds says when, by the clock that all processes share.
func turnEnds(lock *redsync.Mutex) (int64, error) {
	when := time.Now().UnixNano()
	return when, unlock(lock)
}

func (p *peer) holdMany(prefix string, count int) (any, error) {
	for i := range count {
		lock := mutex(p.locks, fmt.Sprintf("%s:%d", prefix, i), redsync.WithExpiry(longExpiry))
		if err := lock.Lock(); err != nil {
			return nil, err
		}
		p.many = append(p.many, lock)
	}
	return true, nil
}

func (p *peer) freeMany() (any, error) {
	for ; len(p.many) > 0; p.many = p.many[1:] {
		if err := unlock(p.many[0]); err != nil {
			return nil, err
		}
	}
	p.many = nil
	return true, nil
}

func (p *peer) waitMany(prefix string, count, names int) (any, error) {
	patient := p.patient
	for i := range count {
		lock := mutex(p.locks, fmt.Sprintf("%s:%d", prefix, i%names))
		p.crowd.Add(1)
		go func() {
			defer p.crowd.Done()
			// Nobody lets go of it while they wait; if somebody does, it is given back.
			if lock.LockContext(patient) == nil {
				_ = unlock(lock)
			}
		}()
	}
	return true, nil
}

func (p *peer) giveUp() (any, error) {
	p.giving()
	p.crowd.Wait()
	p.patient, p.giving = context.WithCancel(context.Background())
	return true, nil
}

func (p *peer) start() (any, error) {
	from := time.Now()
	options := *p.options
	client := redis.NewClient(&options)
	defer client.Close()
	lock := mutex(locksOf(client), "bench:redsync:start")
	if err := lock.Lock(); err != nil {
		return nil, err
	}
	took := time.Since(from)
	return micros(took), unlock(lock)
}
