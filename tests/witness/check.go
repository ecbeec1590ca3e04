package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// limits are what a check may take, and what it allows for.
type limits struct {
	// For each partition.
	time time.Duration
	// How long what is unknown may still come to pass.
	felt time.Duration
}

// translated is a partition as the checker takes it.
type translated struct {
	model porcupine.Model
	steps []porcupine.Operation
}

func translate(part partition, felt time.Duration) (translated, error) {
	switch part.kind {
	// A term of an election is a hold of its lock.
	case "lock", "rw", "semaphore", "election":
		all, err := steps(part.history, felt.Nanoseconds())
		return translated{lockModel, all}, err
	case "latch":
		return translated{latchModel, latchSteps(part.history, felt.Nanoseconds())}, nil
	default:
		return translated{}, fmt.Errorf("there is no model of a %s", part.kind)
	}
}

func (t translated) check(limit time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(t.model, t.steps, limit)
}

// judged counts the refused calls that say something about the holders.
func (t translated) judged() int {
	judged := 0
	for _, one := range t.steps {
		if its := one.Input.(step); its.verb == "acquire" && its.outcome != "granted" {
			judged++
		}
	}
	return judged
}

// before leaves out what nobody had been told by then. What was being given back, counted down or forgotten goes on: others may have been
// told what came of it.
func (t translated) before(end int64) translated {
	var kept []porcupine.Operation
	guards := map[*hold]int{}
	for _, one := range t.steps {
		its := one.Input.(step)
		tells := its.verb == "acquire" || its.verb == "wait"
		if one.Call > end || (one.Return > end && tells) {
			continue
		}
		if its.verb == "acquire" && its.outcome == "granted" {
			guards[its.hold]++
		}
		kept = append(kept, one)
	}
	// A guard that nobody was told of gives nothing back.
	kept = slices.DeleteFunc(kept, func(one porcupine.Operation) bool {
		its := one.Input.(step)
		if its.verb != "release" && its.verb != "lose" {
			return false
		}
		guards[its.hold]--
		return guards[its.hold] < 0
	})
	return translated{t.model, kept}
}

// since leaves out what was over by then. What was held then is still there, with all that befell it. So this part is legal if the
// whole is.
func (t translated) since(begin int64) translated {
	last := map[tenure]int64{}
	for _, one := range t.steps {
		if its := one.Input.(step); its.outcome == "granted" {
			last[its.hold.tenure()] = max(last[its.hold.tenure()], its.hold.ended)
		}
		if its := one.Input.(step); its.hold != nil {
			last[its.hold.tenure()] = max(last[its.hold.tenure()], one.Return)
		}
	}
	kept := slices.DeleteFunc(slices.Clone(t.steps), func(one porcupine.Operation) bool {
		its := one.Input.(step)
		isRefused := its.verb == "acquire" && its.outcome != "granted"
		return its.hold != nil && (last[its.hold.tenure()] < begin || (isRefused && one.Call < begin))
	})
	return translated{t.model, kept}
}

// culprit finds the first operation whose end makes the history illegal, and a short part of the history that is illegal too.
// It does so for an undecided one, too: if a part of it is illegal, the whole is.
func (t translated) culprit(limit time.Duration) (operation, translated, porcupine.CheckResult) {
	quick := min(limit, 5*time.Second)
	ends := slices.Clone(t.steps)
	slices.SortStableFunc(ends, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	first := sort.Search(len(ends)-1, func(at int) bool { return t.before(ends[at].Return).check(quick) != porcupine.Ok })
	culprit, short := ends[first], t.before(ends[first].Return)
	for back := time.Millisecond; back < time.Hour; back *= 4 {
		if some := short.since(culprit.Call - back.Nanoseconds()); some.check(quick) == porcupine.Illegal {
			return culprit.Input.(step).operation, some, porcupine.Illegal
		}
	}
	return culprit.Input.(step).operation, short, short.check(limit)
}

// draw writes what the checker has tried as a page for a browser.
func (t translated) draw(path string, limit time.Duration) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, info := porcupine.CheckOperationsVerbose(t.model, t.inLanes(), limit)
	return porcupine.Visualize(t.model, info, file)
}

// inLanes gives each operation the first row in which it meets no other one.
func (t translated) inLanes() []porcupine.Operation {
	drawn := slices.Clone(t.steps)
	slices.SortStableFunc(drawn, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var ends []int64
	for at := range drawn {
		lane := slices.IndexFunc(ends, func(end int64) bool { return end < drawn[at].Call })
		if lane < 0 {
			lane, ends = len(ends), append(ends, 0)
		}
		drawn[at].ClientId, ends[lane] = lane, drawn[at].Return
	}
	return drawn
}

// page is the name of a file for a partition.
func page(directory, name string) string {
	safe := strings.Map(func(letter rune) rune {
		if strings.ContainsRune("/\\%: *{}", letter) {
			return '_'
		}
		return letter
	}, name)
	return filepath.Join(directory, safe+".html")
}
