package main

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// span is a time in which a refused call may have been beside something else.
type span struct {
	from, to int64
	// Of the client that made it, it is shorter: a client does not refuse its callers for what they have left behind.
	ownTo   int64
	process string
	of      int
}

// key says which guards are one hold.
type key struct {
	argument, process string
	token             uint64
}

func keyOf(one operation) key { return key{one.argument, one.process, one.token} }

// steps translates the history of something that is held. What is unknown may come to pass until it is `felt` no more.
func steps(history []operation, felt int64) ([]porcupine.Operation, error) {
	spans, holds := spansOf(history, felt), map[key]*hold{}
	for _, one := range history {
		if one.verb != "acquire" && one.verb != "release" && one.verb != "lose" {
			continue
		}
		var part, of uint64
		var owner string
		if _, err := fmt.Sscanf(one.argument, "%d/%d %s", &part, &of, &owner); err != nil || part == 0 || part > of {
			return nil, fmt.Errorf("%q is no part of anything", one.argument)
		}
		id := keyOf(one)
		if holds[id] == nil {
			holds[id] = &hold{number: len(holds), process: one.process, part: part, of: of, token: one.token, ended: -1, left: -1}
		}
		if one.verb != "acquire" {
			holds[id].ended = max(holds[id].ended, one.called)
			holds[id].left = max(holds[id].left, one.left)
		}
	}
	goesOn := map[tenure]int64{}
	for _, one := range history {
		if its := holds[keyOf(one)]; its != nil && one.outcome == "granted" {
			goesOn[its.tenure()] = max(goesOn[its.tenure()], one.returned)
		}
	}
	for _, one := range holds {
		one.goesOn = goesOn[one.tenure()]
		if one.ended < 0 {
			one.ended, one.left = never, never
		}
	}
	loose := looseTenures(history, holds)
	var all []porcupine.Operation
	add := func(one step, called, returned int64) {
		all = append(all, porcupine.Operation{Input: one, Call: called, Return: returned})
	}
	for at, one := range history {
		its := step{operation: one, hold: holds[keyOf(one)]}
		switch {
		case one.outcome == "granted" && loose[its.hold.tenure()]:
			// It could be at any moment of its call, and is in nobody's way: the first one is as good as any. The checker would try all.
			its.loose = true
			add(its, one.called, one.called)
		case its.hold != nil && one.verb != "acquire" && loose[its.hold.tenure()]:
			// In the same way the last moment is as good as any.
			last := one.returned
			if one.outcome == "unknown" {
				last = until(last, felt)
			}
			add(its, last, last)
		case one.verb == "acquire" && one.outcome == "unknown":
			// What it may have been granted, nobody knows to have. It was ahead of others for a while, and that is all.
		case one.verb == "acquire":
			// A call that was refused beside a call that may have been ahead of it says nothing about the holders.
			if one.outcome == "granted" || !isBeside(at, one, spans) {
				add(its, one.called, one.returned)
			}
		case one.outcome == "unknown":
			add(its, one.called, until(one.returned, felt))
		default:
			add(its, one.called, one.returned)
		}
	}
	return all, nil
}

// looseTenures are those of which a part may have been granted while two servers granted.
func looseTenures(history []operation, holds map[key]*hold) map[tenure]bool {
	var replaced []operation
	for _, one := range history {
		if one.verb == "replace" && one.called < one.returned {
			replaced = append(replaced, one)
		}
	}
	loose := map[tenure]bool{}
	for _, one := range history {
		if one.outcome == "granted" && slices.ContainsFunc(replaced, one.meets) {
			loose[holds[keyOf(one)].tenure()] = true
		}
	}
	return loose
}

// spansOf finds all that may be ahead of a call that is refused.
func spansOf(history []operation, felt int64) []span {
	var all []span
	for at, one := range history {
		its := span{one.called, one.returned, one.returned, one.process, at}
		switch {
		case isForgotten(one):
			// The successor may have what its predecessor had given back.
			its.to, its.ownTo = until(one.returned, felt), until(one.returned, felt)
		case one.verb != "acquire":
			continue
		case one.outcome == "unknown":
			its.to = until(one.returned, felt)
		case one.outcome == "none":
			// It asked once and waited for nothing: it was in the way of its own client's callers alone.
			its.to = its.from - 1
		}
		all = append(all, its)
	}
	return all
}

func isBeside(at int, one operation, spans []span) bool {
	return slices.ContainsFunc(spans, func(other span) bool {
		to := other.to
		if other.process == one.process {
			to = other.ownTo
		}
		return other.of != at && other.from <= one.returned && to >= one.called
	})
}
