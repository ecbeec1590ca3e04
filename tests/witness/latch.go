package main

import (
	"fmt"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// latch is all that is known of a latch at one moment.
type latch struct {
	isSet bool
	// How often it still has to be counted down, and how many unknown calls may have done so.
	left, maybe uint64
	// It may be gone.
	forgotten bool
}

func (l latch) take(one operation) (bool, latch) {
	isOpen := l.isSet && l.left <= l.maybe
	switch one.verb + " " + one.outcome {
	case "forget ok", "replace ok", "reset ok":
		l.forgotten = true
		return true, l
	case "set ok":
		count, err := strconv.ParseUint(one.argument, 10, 64)
		return err == nil && (!l.isSet || isOpen || l.forgotten), latch{isSet: true, left: count}
	case "count_down ok":
		if l.left > 0 {
			l.left--
		}
		return l.isSet, l
	case "count_down unknown":
		l.maybe++
		return true, l
	case "wait passed":
		return isOpen, l
	case "wait shut":
		return !l.isSet || l.left > 0 || l.forgotten, l
	case "set unknown":
		count, err := strconv.ParseUint(one.argument, 10, 64)
		if !l.isSet {
			l = latch{isSet: true, left: count, forgotten: true}
		}
		return err == nil, l
	case "wait unknown":
		return true, l
	default:
		return false, l
	}
}

// latchSteps translates the history of a latch.
func latchSteps(history []operation, felt int64) []porcupine.Operation {
	var all []porcupine.Operation
	for _, one := range history {
		returned := one.returned
		if one.outcome == "unknown" {
			returned = until(returned, felt)
		}
		all = append(all, porcupine.Operation{Input: step{operation: one}, Call: one.called, Return: returned})
	}
	return all
}

var latchModel = porcupine.Model{
	Init:              func() any { return latch{} },
	Step:              func(state, input, _ any) (bool, any) { return state.(latch).take(input.(step).operation) },
	DescribeOperation: func(input, _ any) string { return describe(input.(step).operation) },
	DescribeState: func(state any) string {
		one := state.(latch)
		return fmt.Sprintf("set: %t, left: %d, perhaps %d less, forgotten: %t", one.isSet, one.left, one.maybe, one.forgotten)
	},
}
