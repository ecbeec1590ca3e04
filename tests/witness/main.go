// witness judges histories of locks that others have written: see README.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// How a run ended.
const (
	legal = iota
	illegal
	undecided
)

func main() {
	var limits limits
	flag.DurationVar(&limits.time, "limit", 20*time.Second, "for each name; then parts of its history are tried, and if none is illegal, it is undecided")
	flag.DurationVar(&limits.felt, "felt", 5*time.Second, "how long an operation of unknown outcome may still take effect, or be in the way")
	pages := flag.String("pages", os.TempDir(), "where a page is written for each name whose history is illegal")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "witness [options] HISTORY...\nIts exit code is 1 if a history is illegal, and 2 if one is undecided or cannot be read.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(undecided)
	}
	worst := legal
	for _, path := range flag.Args() {
		found, err := judge(path, limits, *pages)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			found = undecided
		}
		// That something is illegal counts more than that something else is not known.
		if worst != illegal && found != legal {
			worst = found
		}
	}
	os.Exit(worst)
}

// judge reads one history and says what is wrong with it.
func judge(path string, limits limits, pages string) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return undecided, err
	}
	defer file.Close()
	history, err := parse(file)
	if err != nil {
		return undecided, err
	}
	begun, worst, names, refusals := time.Now(), legal, map[string]int{}, 0
	for _, part := range partitions(history) {
		names[part.kind]++
		its, err := translate(part, limits.felt)
		if err != nil {
			return undecided, fmt.Errorf("%q: %w", part.name, err)
		}
		refusals += its.judged()
		if its.check(limits.time) != porcupine.Ok {
			found := explain(its, part.name, limits, page(pages, part.name))
			if worst != illegal {
				worst = found
			}
		}
	}
	fmt.Printf("%s: %d operations in %.1f s, names %v, %d refusals judged by the holders alone: %s\n",
		path, len(history), time.Since(begun).Seconds(), names, refusals, []string{"legal", "ILLEGAL", "undecided"}[worst])
	return worst, nil
}

// explain says what is wrong with a name, and draws it.
func explain(its translated, name string, limits limits, page string) int {
	culprit, short, result := its.culprit(limits.time)
	if result != porcupine.Illegal {
		fmt.Printf("UNDECIDED: %q, %d operations, not in %s, perhaps for this one: %s of %s, called %d, returned %d\n",
			name, len(its.steps), limits.time, describe(culprit), culprit.process, culprit.called, culprit.returned)
		return undecided
	}
	fmt.Printf("ILLEGAL: %q, from the end of this operation on: %s of %s, called %d, returned %d\n",
		name, describe(culprit), culprit.process, culprit.called, culprit.returned)
	if err := short.draw(page, limits.time); err != nil {
		fmt.Println(err)
		return illegal
	}
	fmt.Printf("  %d operations of it are drawn in %s\n", len(short.steps), page)
	return illegal
}
