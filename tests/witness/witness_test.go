package main

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// allowed is short, so that a few moments are enough to tell what is over.
var allowed = limits{time: 20 * time.Second, felt: 100}

// verdict is that of a history of one name.
func verdict(t *testing.T, kind string, lines ...string) porcupine.CheckResult {
	t.Helper()
	return read(t, kind, lines...).check(allowed.time)
}

// read takes the history of one name. Its lines have blanks for tabs, and no name and kind.
func read(t *testing.T, kind string, lines ...string) translated {
	t.Helper()
	var text []string
	for _, line := range lines {
		words := strings.Fields(line)
		// The owner is a part of the argument.
		if len(words) >= 8 {
			words = slices.Concat(words[:4], []string{words[4] + " " + words[5]}, words[6:])
		}
		text = append(text, strings.Join(slices.Insert(words, 3, "a name", kind), "\t"))
	}
	history, err := parse(strings.NewReader(strings.Join(text, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return of(t, history)
}

func of(t *testing.T, history []operation) translated {
	t.Helper()
	its, err := translate(partitions(history)[0], allowed.felt)
	if err != nil {
		t.Fatal(err)
	}
	return its
}

// Each pair of histories differs in what makes the second one illegal.
var cases = []struct {
	what, kind     string
	legal, illegal []string
}{
	{
		"two holders", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 10 19 release 1/1 x ok 1", "b 5 30 acquire 1/1 y granted 2"},
		[]string{"a 0 9 acquire 1/1 x granted 1", "b 5 30 acquire 1/1 y granted 2", "a 31 40 release 1/1 x ok 1"},
	},
	{
		"a token that falls", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 5", "a 10 19 release 1/1 x ok 5", "b 20 30 acquire 1/1 y granted 6"},
		[]string{"a 0 9 acquire 1/1 x granted 5", "a 10 19 release 1/1 x ok 5", "b 20 30 acquire 1/1 y granted 4"},
	},
	{
		"a token of two holders", "election",
		[]string{"a 0 9 acquire 1/1 x granted 5", "a 10 19 release 1/1 x ok 5", "b 20 30 acquire 1/1 y granted 6"},
		[]string{"a 0 9 acquire 1/1 x granted 5", "a 10 19 release 1/1 x ok 5", "b 20 30 acquire 1/1 y granted 5"},
	},
	{
		"a token that falls where something was forgotten", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 5", "s 10 11 forget - ok -", "b 20 30 acquire 1/1 y granted 6"},
		[]string{"a 0 9 acquire 1/1 x granted 5", "s 10 11 forget - ok -", "b 20 30 acquire 1/1 y granted 4"},
	},
	{
		"two holders, of whom neither was granted while a server was replaced", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "s 8 40 replace - ok -", "b 20 30 acquire 1/1 y granted 3", "c 21 29 acquire 1/1 z granted 2", "b 50 50 release 1/1 y ok 3", "c 50 50 release 1/1 z ok 2"},
		[]string{"a 0 9 acquire 1/1 x granted 1", "s 8 40 replace - ok -", "b 41 45 acquire 1/1 y granted 3", "c 41 45 acquire 1/1 z granted 4", "b 50 50 release 1/1 y ok 3", "c 50 50 release 1/1 z ok 4"},
	},
	{
		"two holders, although something was forgotten before both", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "s 10 11 forget - ok -", "b 20 30 acquire 1/1 y granted 2"},
		[]string{"s 0 1 forget - ok -", "a 2 9 acquire 1/1 x granted 1", "b 20 30 acquire 1/1 y granted 2"},
	},
	{
		"two holders, of whom one was handed on by a client that did not know that its lock was forgotten", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 2048", "s 10 11 forget - ok -", "a 12 12 release 1/1 x ok 2048", "b 13 14 acquire 1/1 y granted 4096", "a 12 16 acquire 1/1 z granted 2049"},
		[]string{"a 0 9 acquire 1/1 x granted 2048", "a 12 12 release 1/1 x ok 2048", "b 13 14 acquire 1/1 y granted 4096", "a 12 16 acquire 1/1 z granted 2049"},
	},
	{
		"a client that gets the number of its own former grant again, which it has handed on", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 2048", "s 10 11 forget - ok -", "s 10 11 reset - ok -", "a 12 12 release 1/1 x ok 2048", "a 0 14 acquire 1/1 z granted 2049", "a 15 15 release 1/1 z ok 2049", "b 16 17 acquire 1/1 y granted 1024", "b 18 18 release 1/1 y ok 1024", "a 16 20 acquire 1/1 w granted 2048"},
		[]string{"a 0 9 acquire 1/1 x granted 2048", "s 10 11 forget - ok -", "a 12 12 release 1/1 x ok 2048", "a 0 14 acquire 1/1 z granted 2049", "a 15 15 release 1/1 z ok 2049", "a 16 20 acquire 1/1 w granted 2048"},
	},
	{
		"two holders, one of whom nests", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 10 12 acquire 1/1 x granted 1", "a 13 14 release 1/1 x ok 1", "a 15 19 release 1/1 x ok 1", "b 20 30 acquire 1/1 y granted 2"},
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 10 12 acquire 1/1 x granted 1", "a 13 14 release 1/1 x ok 1", "b 20 30 acquire 1/1 y granted 2", "a 31 32 release 1/1 x ok 1"},
	},
	{
		"a permit too many", "semaphore",
		[]string{"a 0 9 acquire 2/3 x granted 1", "b 5 12 acquire 1/3 y granted 2"},
		[]string{"a 0 9 acquire 2/3 x granted 1", "b 5 12 acquire 2/3 y granted 2"},
	},
	{
		"a reader beside a writer", "rw",
		[]string{"a 0 9 acquire 1/9 x granted 1", "b 5 12 acquire 1/9 y granted 2"},
		[]string{"a 0 9 acquire 9/9 x granted 1", "b 5 12 acquire 1/9 y granted 2"},
	},
	{
		"a writer whose token is below that of a reader before it", "rw",
		[]string{"a 0 9 acquire 1/9 x granted 7", "a 10 11 release 1/9 x ok 7", "b 20 30 acquire 9/9 y granted 8"},
		[]string{"a 0 9 acquire 1/9 x granted 7", "a 10 11 release 1/9 x ok 7", "b 20 30 acquire 9/9 y granted 6"},
	},
	{
		"a reader whose token is below that of a writer before it, and not only of a reader", "rw",
		[]string{"a 0 9 acquire 1/9 x granted 7", "a 10 11 release 1/9 x ok 7", "b 20 30 acquire 1/9 y granted 6"},
		[]string{"a 0 9 acquire 9/9 x granted 7", "a 10 11 release 9/9 x ok 7", "b 20 30 acquire 1/9 y granted 6"},
	},
	{
		"None beside a lock that was given back", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "b 12 14 acquire 1/1 y none -", "a 13 19 release 1/1 x ok 1"},
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 13 19 release 1/1 x ok 1", "b 20 24 acquire 1/1 y none -"},
	},
	{
		"None beside what the same client gives back", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 13 13 release 1/1 x unknown 1", "b 20 24 acquire 1/1 y none -"},
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 13 13 release 1/1 x unknown 1", "a 20 24 acquire 1/1 y none -"},
	},
	{
		"None before the client itself knows what its holder has said, and not after that", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 13 30 release 1/1 x ok 1 16", "a 15 18 acquire 1/1 y none -"},
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 13 30 release 1/1 x ok 1", "a 15 18 acquire 1/1 y none -"},
	},
	{
		"None for a hold of whose end its client knew before the call", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 13 13 release 1/1 x unknown 1 20", "a 20 24 acquire 1/1 y none -"},
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 13 13 release 1/1 x unknown 1 19", "a 20 24 acquire 1/1 y none -"},
	},
	{
		"a holder beside one who has said that it has ended, though its client did not know it yet", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 13 30 release 1/1 x ok 1 25", "b 12 15 acquire 1/1 y granted 2"},
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 16 30 release 1/1 x ok 1 25", "b 12 15 acquire 1/1 y granted 2"},
	},
	{
		"None long after a call that was cut short", "lock",
		[]string{"a 0 9 acquire 1/1 x unknown -", "b 20 24 acquire 1/1 y none -"},
		[]string{"a 0 9 acquire 1/1 x unknown -", "b 120 124 acquire 1/1 y none -"},
	},
	{
		"None beside a call that waits for nothing", "lock",
		[]string{"a 0 29 acquire 1/1 x timeout -", "c 0 40 acquire 1/1 z unknown -", "b 20 24 acquire 1/1 y none -"},
		[]string{"a 0 29 acquire 1/1 x none -", "b 20 24 acquire 1/1 y none -"},
	},
	{
		"None for a permit that is free", "semaphore",
		[]string{"a 0 9 acquire 2/3 x granted 1", "b 20 24 acquire 2/3 y none -"},
		[]string{"a 0 9 acquire 2/3 x granted 1", "b 20 24 acquire 1/3 y none -"},
	},
	{
		"a lock that was lost though nobody took it", "lock",
		[]string{"a 0 9 acquire 1/1 x granted 1", "s 10 11 forget - ok -", "a 12 13 lose 1/1 x ok 1"},
		[]string{"a 0 9 acquire 1/1 x granted 1", "a 12 13 lose 1/1 x ok 1"},
	},
	{
		"a latch that is passed before zero", "latch",
		[]string{"a 0 9 set 2 ok -", "b 10 12 count_down - ok -", "c 13 22 count_down - ok -", "a 10 20 wait - passed -"},
		[]string{"a 0 9 set 2 ok -", "b 10 12 count_down - ok -", "a 10 20 wait - passed -", "c 21 22 count_down - ok -"},
	},
	{
		"a latch that is passed although it was forgotten", "latch",
		[]string{"a 0 9 set 1 ok -", "s 10 11 forget - ok -", "b 10 12 count_down - unknown -", "a 10 20 wait - passed -"},
		[]string{"a 0 9 set 1 ok -", "s 10 11 forget - ok -", "a 10 20 wait - passed -"},
	},
	{
		"a latch that stays shut", "latch",
		[]string{"a 0 9 set 1 ok -", "b 10 20 count_down - ok -", "a 15 30 wait - shut -"},
		[]string{"a 0 9 set 1 ok -", "b 10 20 count_down - ok -", "a 21 30 wait - shut -"},
	},
}

func TestWhatBreaksAPromiseIsIllegal(t *testing.T) {
	for _, one := range cases {
		t.Run(one.what, func(t *testing.T) {
			if got := verdict(t, one.kind, one.legal...); got != porcupine.Ok {
				t.Errorf("without it: %s", got)
			}
			if got := verdict(t, one.kind, one.illegal...); got != porcupine.Illegal {
				t.Errorf("with it: %s", got)
			}
		})
	}
}

// made is a history of a lock that a real one could have: clients wait, are refused, and drop their guards.
func made(random *rand.Rand, holds int) []operation {
	var history []operation
	now, token := int64(1000), uint64(100)
	for number := range holds {
		token += 1 + uint64(random.Intn(3))
		called := now - int64(random.Intn(300))
		its := operation{
			process: fmt.Sprintf("client-%d", number%7), called: called, returned: now + int64(random.Intn(20)),
			name: "a name", kind: "lock", verb: "acquire", argument: fmt.Sprintf("1/1 owner-%d", number), outcome: "granted", token: token,
		}
		history = append(history, its)
		ended := its.returned + 1 + int64(random.Intn(50))
		end := its
		end.verb, end.called, end.returned, end.outcome = "release", ended, ended+int64(random.Intn(30)), "ok"
		if random.Intn(3) == 0 {
			end.returned, end.outcome = ended, "unknown"
		}
		history = append(history, end)
		if random.Intn(4) == 0 {
			refused := its
			refused.process, refused.argument = "another", fmt.Sprintf("1/1 refused-%d", number)
			refused.called, refused.returned, refused.outcome, refused.token = its.returned, ended, "none", 0
			history = append(history, refused)
		}
		// Mostly the next one has waited, and sometimes nobody has.
		now = ended + 1 + int64(random.Intn(20))
		if random.Intn(10) == 0 {
			now += 1000
		}
	}
	return history
}

func checked(t *testing.T, history []operation) porcupine.CheckResult {
	t.Helper()
	return of(t, history).check(allowed.time)
}

// granted finds the hold in the middle of a history, and the one after it.
func granted(history []operation) (int, int) {
	var all []int
	for at, one := range history {
		if one.outcome == "granted" {
			all = append(all, at)
		}
	}
	return all[len(all)/2], all[len(all)/2+1]
}

func TestADefectInALongHistoryIsIllegal(t *testing.T) {
	defects := map[string]func([]operation) []operation{
		"a holder is let in before another one has ended": func(history []operation) []operation {
			before, next := granted(history)
			history[next].called, history[next].returned = history[before].returned+1, history[before].returned+1
			history[before+1].called = history[before].returned + 2
			history[before+1].returned = max(history[before+1].returned, history[before+1].called)
			return history
		},
		"two tokens are exchanged": func(history []operation) []operation {
			before, next := granted(history)
			history[before].token, history[next].token = history[next].token, history[before].token
			history[before+1].token, history[next+1].token = history[before].token, history[next].token
			return history
		},
		"a token comes twice": func(history []operation) []operation {
			before, next := granted(history)
			history[next].token, history[next+1].token = history[before].token, history[before].token
			return history
		},
		"a holder never ends": func(history []operation) []operation {
			before, _ := granted(history)
			return slices.Delete(history, before+1, before+2)
		},
		"a call is refused when all is over": func(history []operation) []operation {
			refused := history[0]
			refused.outcome, refused.token, refused.argument = "none", 0, "1/1 late"
			refused.called = history[len(history)-1].returned + 10_000
			refused.returned = refused.called + 10
			return append(history, refused)
		},
		"a holder loses it without a cause": func(history []operation) []operation {
			before, _ := granted(history)
			history[before+1].verb, history[before+1].outcome = "lose", "ok"
			return history
		},
	}
	for what, defect := range defects {
		t.Run(what, func(t *testing.T) {
			for seed := range int64(20) {
				history := made(rand.New(rand.NewSource(seed)), 400)
				if got := checked(t, slices.Clone(history)); got != porcupine.Ok {
					t.Fatalf("seed %d without it: %s", seed, got)
				}
				if got := checked(t, defect(history)); got != porcupine.Illegal {
					t.Errorf("seed %d with it: %s", seed, got)
				}
			}
		})
	}
}

func TestTheCulpritIsNamed(t *testing.T) {
	history := made(rand.New(rand.NewSource(1)), 400)
	before, next := granted(history)
	history[next].token, history[next+1].token = history[before].token-50, history[before].token-50
	its := of(t, history)
	culprit, short, _ := its.culprit(allowed.time)
	if culprit.argument != history[next].argument {
		t.Errorf("%v in place of %v", culprit, history[next])
	}
	if len(short.steps) >= len(its.steps) || short.check(allowed.time) != porcupine.Illegal {
		t.Errorf("%d of %d operations are shown", len(short.steps), len(its.steps))
	}
}

// The server forgets the first holder while the second one is told of its grant.
func TestAPartHasWhatAServerIsForgetting(t *testing.T) {
	its := read(t, "lock",
		"a 0 9 acquire 1/1 x granted 1",
		"server 10 30 forget - ok -",
		"b 12 20 acquire 1/1 y granted 2",
		"b 40 41 release 1/1 y ok 2")
	for end, part := range map[string]translated{"all": its, "until the grant": its.before(20)} {
		if got := part.check(allowed.time); got != porcupine.Ok {
			t.Errorf("%s: %s", end, got)
		}
	}
}

func TestWhatIsNoHistoryIsRefused(t *testing.T) {
	for _, line := range []string{"a\t1\t2", "a\t9\t2\tn\tlock\tacquire\t1/1 x\tgranted\t1", "a\tx\t2\tn\tlock\tacquire\t1/1 x\tgranted\t1", "a\t1\t2\tn\tlock\trelease\t1/1 x\tok\t1\tsoon"} {
		if _, err := parse(strings.NewReader(line)); err == nil {
			t.Errorf("%q was read", line)
		}
	}
	history, _ := parse(strings.NewReader("# a remark\n\na\t1\topen\tn\tbarrier\tenter\t-\tunknown\t-"))
	if _, err := translate(partitions(history)[0], allowed.felt); err == nil {
		t.Error("a kind without a model was judged")
	}
}
