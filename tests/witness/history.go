package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// never is the return of a call that nobody has seen return.
const never = int64(math.MaxInt64)

// operation is one line of a history.
type operation struct {
	process          string
	called, returned int64
	name, kind       string
	// What was asked for, and how that ended.
	verb, argument, outcome string
	// 0 if there is none.
	token uint64
	// Of a release: by when the client itself knew of it.
	left int64
}

// meets says whether both were under way at some moment.
func (o operation) meets(other operation) bool {
	return o.called <= other.returned && other.called <= o.returned
}

// parse reads a history: the README says what its lines mean.
func parse(source io.Reader) ([]operation, error) {
	var history []operation
	lines := bufio.NewScanner(source)
	for number := 1; lines.Scan(); number++ {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			one, err := parseLine(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w: %q", number, err, line)
			}
			history = append(history, one)
		}
	}
	return history, lines.Err()
}

func parseLine(line string) (operation, error) {
	words := strings.Split(line, "\t")
	if len(words) != 9 && len(words) != 10 {
		return operation{}, fmt.Errorf("%d columns in place of 9 or 10", len(words))
	}
	one := operation{process: words[0], name: words[3], kind: words[4], verb: words[5], argument: words[6], outcome: words[7]}
	var errs [4]error
	one.called, errs[0] = strconv.ParseInt(words[1], 10, 64)
	one.returned = never
	if words[2] != "open" {
		one.returned, errs[1] = strconv.ParseInt(words[2], 10, 64)
	}
	if words[8] != "-" {
		one.token, errs[2] = strconv.ParseUint(words[8], 10, 64)
	}
	if len(words) == 10 {
		one.left, errs[3] = strconv.ParseInt(words[9], 10, 64)
	}
	one.left = max(one.left, one.called)
	for _, err := range errs {
		if err != nil {
			return operation{}, err
		}
	}
	if one.returned < one.called {
		return operation{}, fmt.Errorf("it returned before it was called")
	}
	return one, nil
}

// isForgotten says whether it befell a server, and not a caller.
func isForgotten(one operation) bool {
	return one.verb == "forget" || one.verb == "replace" || one.verb == "reset"
}

// partition is what happened to one name: it says nothing about another one.
type partition struct {
	name, kind string
	history    []operation
}

// partitions come in the order of their names. What befalls all names is a part of each.
func partitions(history []operation) []partition {
	byName := map[string]*partition{}
	for _, one := range history {
		if isForgotten(one) {
			continue
		}
		if byName[one.name] == nil {
			byName[one.name] = &partition{name: one.name, kind: one.kind}
		}
		byName[one.name].history = append(byName[one.name].history, one)
	}
	for _, one := range history {
		for name, part := range byName {
			if isForgotten(one) && (one.name == "*" || one.name == name) {
				part.history = append(part.history, one)
			}
		}
	}
	var all []partition
	for _, part := range byName {
		slices.SortStableFunc(part.history, func(a, b operation) int { return cmp.Compare(a.called, b.called) })
		all = append(all, *part)
	}
	slices.SortFunc(all, func(a, b partition) int { return strings.Compare(a.name, b.name) })
	return all
}

// until adds a time to a moment, which may be never.
func until(at, time int64) int64 {
	if at > never-time {
		return never
	}
	return at + time
}
