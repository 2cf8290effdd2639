// Redsync as a peer of the benchmark: answers the commands of benches/compare/PROTOCOL.md.
//
// Redsync on one go-redis client, with the defaults of both, but for
//   - the number of tries, which would end a wait after 32: without end;
//   - the expiry of locks that are held for long (hold, hold-many), because Redsync renews nothing by itself.
//
// A task is a goroutine. Its Mutex is its own: a Mutex keeps the value by which it is held.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A peer whose input has ended has nobody to answer: a command that hangs then must not keep it.
const lastAnswerWithin = time.Minute

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bench <redis url>")
		os.Exit(2)
	}
	peer, err := newPeer(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for line := range lines() {
		if words := strings.Fields(line); len(words) > 0 {
			fmt.Println(answer(peer, words))
		}
	}
}

// lines reads on while a command runs, so that the end of the input is noticed.
func lines() <-chan string {
	lines := make(chan string, 16)
	go func() {
		input := bufio.NewScanner(os.Stdin)
		input.Buffer(nil, 1<<20) // a line may hold a thousand names
		for input.Scan() {
			lines <- input.Text()
		}
		time.AfterFunc(lastAnswerWithin, func() { os.Exit(1) })
		close(lines)
	}()
	return lines
}

func answer(peer *peer, words []string) string {
	result, err := run(peer, words)
	var lacks unsupported
	switch {
	case errors.As(err, &lacks):
		result = map[string]string{"unsupported": string(lacks)}
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		result = map[string]string{"error": err.Error()}
	}
	text, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// unsupported is the error of what Redsync has no means for.
type unsupported string

func (why unsupported) Error() string { return "unsupported: " + string(why) }

func lacking(why string) func(*peer, arguments) (any, error) {
	return func(*peer, arguments) (any, error) { return nil, unsupported(why) }
}

// What a command expects: k is a kind of lock, t a text, n a number, s a time in seconds, * is anything.
var commands = map[string]struct {
	expects string
	run     func(*peer, arguments) (any, error)
}{
	"pair":      {"knss", func(p *peer, a arguments) (any, error) { return p.pair(a.number[1], a.time[2], a.time[3]) }},
	"contend":   {"tnss", func(p *peer, a arguments) (any, error) { return p.contend(a.text[0], a.number[1], a.time[2], a.time[3]) }},
	"mixed":     {"nnss", lacking("Redsync has no read-write lock")},
	"hold":      {"kt", func(p *peer, a arguments) (any, error) { return p.hold(a.text[1]) }},
	"wait":      {"ktn", func(p *peer, a arguments) (any, error) { return p.wait(a.text[1], a.number[2]) }},
	"free":      {"", func(p *peer, _ arguments) (any, error) { return p.free() }},
	"times":     {"", func(p *peer, _ arguments) (any, error) { return p.times() }},
	"hold-many": {"tn", func(p *peer, a arguments) (any, error) { return p.holdMany(a.text[0], a.number[1]) }},
	"free-many": {"", func(p *peer, _ arguments) (any, error) { return p.freeMany() }},
	"wait-many": {"tnn", func(p *peer, a arguments) (any, error) { return p.waitMany(a.text[0], a.number[1], a.number[2]) }},
	"give-up":   {"", func(p *peer, _ arguments) (any, error) { return p.giveUp() }},
	"take":      {"*", lacking("Redsync has no lock of several names")},
	"release":   {"", lacking("Redsync has no lock of several names")},
	"start":     {"", func(p *peer, _ arguments) (any, error) { return p.start() }},
}

func run(peer *peer, words []string) (any, error) {
	command, known := commands[words[0]]
	if !known {
		return nil, fmt.Errorf("no such command: %s", words[0])
	}
	arguments, err := read(command.expects, words[1:])
	if err != nil {
		return nil, err
	}
	return command.run(peer, arguments)
}

// arguments of a command by their places, each in the map of its type.
type arguments struct {
	text   map[int]string
	number map[int]int
	time   map[int]time.Duration
}

func read(expected string, words []string) (arguments, error) {
	read := arguments{map[int]string{}, map[int]int{}, map[int]time.Duration{}}
	if expected == "*" {
		return read, nil
	}
	if len(words) != len(expected) {
		return read, fmt.Errorf("%d arguments instead of %d", len(words), len(expected))
	}
	var err error
	for at, word := range words {
		switch expected[at] {
		case 'k':
			if word != "reentrant" {
				err = unsupported("Redsync has one kind of lock, a plain one")
			}
		case 't':
			read.text[at] = word
		case 'n':
			read.number[at], err = strconv.Atoi(word)
		case 's':
			read.time[at], err = time.ParseDuration(word + "s")
		}
		if err != nil {
			return read, err
		}
	}
	return read, nil
}
