package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// One model serves all that is held: there is so much of a thing, and each holder has a part of it. A lock has one part, a
// semaphore as many as it has permits, and a read-write lock more than there are readers, of which a writer takes all.

// step is an operation as the model takes it.
type step struct {
	operation
	// Which hold it begins or ends. Guards that nest in each other are one hold.
	hold *hold
	// Its tenure may have been granted while two servers granted: it may be beside anybody.
	loose bool
}

// hold is one holder's time.
type hold struct {
	// In the order in which holds came up in the history.
	number   int
	process  string
	part, of uint64
	token    uint64
	// When its holder believed in it no more.
	ended int64
	// By when the client itself knew that, and refused nobody for it any more.
	left int64
	// When somebody was last told of a hold of the same tenure.
	goesOn int64
}

// tenure is a grant by a server. A client may hand it on to its next caller without asking the server: then the last ten bits of
// the token are counted up.
type tenure struct {
	process string
	grant   uint64
}

func (t tenure) compare(other tenure) int {
	return cmp.Or(cmp.Compare(t.grant, other.grant), strings.Compare(t.process, other.process))
}

func (h *hold) tenure() tenure {
	if h.token == 0 {
		return tenure{h.process, ^uint64(h.number)}
	}
	return tenure{h.process, h.token >> 10}
}

// share is what is held of one hold at some moment.
type share struct {
	*hold
	guards int
	// Nothing has happened that may have taken it from its holder.
	sure bool
}

// doubt is about a tenure that a server may have forgotten before its client learned of it.
type doubt struct {
	tenure
	// The last one of it.
	token uint64
}

// held is all that is known at one moment. It is never changed.
type held struct {
	// In the order of their holds.
	shares []share
	// The greatest token so far: of all, and of those who held it alone.
	greatest, alone uint64
	// Who was let in last.
	latest *hold
	// In the order of their tenures.
	doubted []doubt
	// The counter of the tokens was lost: a client may get a number that it has had before.
	again bool
}

func (s share) is(other share) bool {
	return s.hold == other.hold && s.guards == other.guards && s.sure == other.sure
}

func (h held) equal(other held) bool {
	return h.greatest == other.greatest && h.alone == other.alone &&
		h.latest == other.latest && h.again == other.again && slices.Equal(h.doubted, other.doubted) &&
		slices.EqualFunc(h.shares, other.shares, share.is)
}

func (h held) hash() uint64 {
	const prime = 1099511628211
	sum := h.greatest*prime ^ h.alone
	for _, one := range h.shares {
		sum = sum*prime ^ uint64(one.number)<<8 ^ uint64(one.guards)
	}
	return sum
}

// place says where the share of a hold is, or would be.
func (h held) place(of *hold) (int, bool) {
	return slices.BinarySearchFunc(h.shares, of, func(one share, of *hold) int { return cmp.Compare(one.number, of.number) })
}

// unsure is the same after something that may have taken any of it from its holder. Only a tenure that goes on needs to be known.
func (h held) unsure(when int64) held {
	shares := slices.Clone(h.shares)
	last := []share{}
	if h.latest != nil {
		last = append(last, share{hold: h.latest})
	}
	for at := range shares {
		shares[at].sure = false
		last = append(last, shares[at])
	}
	h.shares = shares
	for _, one := range last {
		if one.goesOn >= when {
			h = h.doubt(one)
		}
	}
	return h
}

// doubtful says where a tenure that may have been forgotten is, or would be.
func (h held) doubtful(of tenure) (int, bool) {
	return slices.BinarySearchFunc(h.doubted, of, func(one doubt, of tenure) int { return one.tenure.compare(of) })
}

func (h held) doubt(one share) held {
	at, is := h.doubtful(one.tenure())
	doubted := slices.Clone(h.doubted)
	if !is {
		doubted = slices.Insert(doubted, at, doubt{tenure: one.tenure()})
	}
	doubted[at].token = max(doubted[at].token, one.token)
	h.doubted = doubted
	return h
}

// handOn lets in the next holder of a tenure that may have been forgotten. Its client lets them in one after the other.
func (h held) handOn(after uint64, to share) (bool, held) {
	isHeld := slices.ContainsFunc(h.shares, func(one share) bool { return one.tenure() == to.tenure() })
	if to.part == to.of && (isHeld || to.token <= after) {
		return false, h
	}
	return true, h.with(to).doubt(to)
}

func (h held) with(one share) held {
	at, _ := h.place(one.hold)
	h.shares = slices.Insert(slices.Clone(h.shares), at, one)
	return h
}

// used adds up the shares that count.
func (h held) used(counts func(share) bool) uint64 {
	var sum uint64
	for _, one := range h.shares {
		if counts(one) {
			sum += one.part
		}
	}
	return sum
}

// grant lets a holder in, if there is room and its token is great enough.
func (h held) grant(to *hold, loose bool) (bool, held) {
	if at, nests := h.place(to); nests {
		shares := slices.Clone(h.shares)
		shares[at].guards++
		h.shares = shares
		return true, h
	}
	one := share{hold: to, guards: 1}
	if loose {
		return true, h.with(one)
	}
	if at, is := h.doubtful(to.tenure()); is {
		if goesOn, after := h.handOn(h.doubted[at].token, one); goesOn || !h.again {
			return goesOn, after
		}
	}
	fits := h.used(func(one share) bool { return one.sure })+to.part <= to.of
	isAlone, floor := to.part == to.of, h.alone
	if isAlone {
		floor = h.greatest
	}
	if !fits || (to.token > 0 && to.token <= floor) {
		return false, h
	}
	one.sure = true
	h.latest, h.greatest = to, max(h.greatest, to.token)
	if isAlone {
		h.alone = max(h.alone, to.token)
	}
	return true, h.with(one)
}

// refuse says whether somebody could be told that there is not enough left. What its own client had, and had said that it
// has no more, is no reason once the client knows.
func (h held) refuse(to step) bool {
	counts := func(one share) bool { return one.process != to.process || one.left >= to.called }
	return h.used(counts)+to.hold.part > to.hold.of
}

// leave ends one guard of a hold.
func (h held) leave(which *hold) (bool, held) {
	at, is := h.place(which)
	if !is {
		return false, h
	}
	shares := slices.Clone(h.shares)
	if shares[at].guards--; shares[at].guards == 0 {
		shares = slices.Delete(shares, at, at+1)
	}
	h.shares = shares
	return true, h
}

// lose ends a guard whose holder was told, before its lease was over, that it has nothing more: somebody must have taken it.
func (h held) lose(which *hold) (bool, held) {
	if at, is := h.place(which); is && h.shares[at].sure {
		return false, h
	}
	return h.leave(which)
}

func (h held) take(one step) (bool, held) {
	switch {
	case one.verb == "reset":
		h.greatest, h.alone, h.again = 0, 0, true
		return true, h
	case isForgotten(one.operation):
		return true, h.unsure(one.called)
	case one.verb == "acquire" && one.outcome == "granted":
		return h.grant(one.hold, one.loose)
	case one.verb == "acquire":
		return h.refuse(one), h
	case one.verb == "lose":
		return h.lose(one.hold)
	default:
		return h.leave(one.hold)
	}
}

var lockModel = porcupine.Model{
	Init:  func() any { return held{} },
	Step:  func(state, input, _ any) (bool, any) { return state.(held).take(input.(step)) },
	Equal: func(one, other any) bool { return one.(held).equal(other.(held)) },
	Hash:  func(state any) uint64 { return state.(held).hash() },
	DescribeOperation: func(input, _ any) string {
		one := input.(step)
		return describe(one.operation)
	},
	DescribeState: func(state any) string {
		var words []string
		for _, one := range state.(held).shares {
			words = append(words, fmt.Sprintf("%s has %d/%d under %d (%d guards, sure: %t)", one.process, one.part, one.of, one.token, one.guards, one.sure))
		}
		return fmt.Sprintf("[%s], greatest token %d", strings.Join(words, "; "), state.(held).greatest)
	},
}

func describe(one operation) string {
	words := []string{one.verb}
	if one.argument != "-" {
		words = append(words, one.argument)
	}
	words = append(words, "->", one.outcome)
	if one.token > 0 {
		words = append(words, fmt.Sprint(one.token))
	}
	return strings.Join(words, " ")
}
