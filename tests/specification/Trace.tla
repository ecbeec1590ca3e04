------------------------------- MODULE Trace -------------------------------
(* Whether histories of the real library are behaviours of Line. The simulation writes what happened to one lock, step *)
(* by step, and scripts/specification puts that into the module Traces. Here each step of a script has to be a step of *)
(* Line, from what Line has in the server to what the simulated server has. What a client sends is taken from the      *)
(* trace. What it believes in has to follow from an answer or a message of Line, and may not last longer.              *)
(*                                                                                                                     *)
(* A tick is a millisecond. README.md says what is left out.                                                           *)
EXTENDS Line, Traces

CONSTANTS
  Rules,    \* each of them is left out, and the traces are judged without it; "none": none is
  Explains  \* whether TLC prints why a trace is rejected, which takes it several times the time

VARIABLES
  broken, \* the rule that is left out
  n,      \* which of the traces
  at,     \* which of its steps comes next
  now,    \* the time, in ms
  look,   \* the last step that shows what lies in the server; 0: none
  given   \* the owner fields that clients have sent back

Steps == Traces[n].steps
Event == Steps[at]
Who == Event.f[1]
Seen == Steps[look].seen
Max(a, b) == IF a > b THEN a ELSE b

\* A waiter, as the trace shows it: its owner field and its place; when the life of its client ends, when that was told to show a
\* sign of life, and its waiter_ttl.
Field(w) == <<w[1], w[2]>>
Place(w) == w[3]
EndOf(w) == w[4]
ToldAt(w) == w[5]
TtlOf(w) == w[6]

----------------------------------------------------------------------------
(* What the configuration puts in the place of definitions of Line, which has ticks in the place of milliseconds. *)

TraceClients == 1..(CHOOSE m \in {Traces[i].clients : i \in DOMAIN Traces} : \A i \in DOMAIN Traces : Traces[i].clients <= m)

\* So one run of TLC can judge without many rules, one at a time.
TraceIs(rule) == broken = rule

\* LEAST_LIFE of lua/line/clock.lua. What has no more left could receive its grant too late.
TraceLeastLife == 12

\* A key of Redis lives for the whole of its last millisecond.
TraceIsOver(left, ms) == left < ms

\* The network of the simulation may deliver a request after its lease.
TraceMayStillRun(r, ms) == TRUE

\* A client that has lost its place names it, and gets it back. If its former owner field still stands at that place, Redis orders
\* the two by their texts.
TraceLinesUp(seq, f) ==
  LET stands(g, k) == k \in DOMAIN Event.seen.line /\ Field(Event.seen.line[k]) = g
      precedes(g) == \E k, m \in DOMAIN Event.seen.line : k < m /\ stands(g, k) /\ stands(f, m)
      before(g) == \E i \in DOMAIN Seen.line :
                     LET w == Seen.line[i] IN
                     Field(w) = g /\ (Place(w) < Event.had \/ (Place(w) = Event.had /\ precedes(g)))
      first == SelectSeq(seq, before)
  IN  IF Event.had = 0 \/ look = 0 THEN Append(seq, f)
      ELSE Append(first, f) \o SelectSeq(seq, LAMBDA g : ~before(g))

\* The scripts save messages, so they look at the front less often than Line does. But whom they find dead has to be dead, and
\* whom they tell to show a sign of life has to be silent.
Remains(f) == \E i \in DOMAIN Event.seen.line : Field(Event.seen.line[i]) = f
WasAsked(w) == ToldAt(w) >= EndOf(w) - LeastLife
RECURSIVE LeaveAll(_, _)
LeaveAll(s, gone) == IF gone = {} THEN s ELSE LET f == CHOOSE f \in gone : TRUE IN LeaveAll(Leave(s, f), gone \ {f})
TraceLook(s, asker, i, awake) ==
  LET all == {s.line[k] : k \in DOMAIN s.line}
      left == LeaveAll(s, {f \in all : Dead(s, f) /\ ~Remains(f)})
      told == {Event.seen.line[k][1] : k \in {k \in DOMAIN Event.seen.line : WasAsked(Event.seen.line[k])}}
  IN  IF ~Event.shown THEN s ELSE
      [left EXCEPT !.asked = [c \in Clients |->
         IF c \in told /\ @[c] = NotAsked /\ (\E f \in all : f[1] = c /\ ~Lives(s, f)) THEN Ttl ELSE @[c]]]

----------------------------------------------------------------------------
(* Time. The line has a clock of its own, which leaves out the time in which the server stalled: lua/line/clock.lua. *)

\* Redis deletes a line and its notes if no client asks for very long: keep_line() of lua/line/acquire.lua.
IsGone(t) == look = 0 \/ (Seen.line # <<>> /\ Steps[look].at + Seen.kept < t)

LineTime(t) ==
  IF IsGone(t) THEN t ELSE IF Seen.clock = <<>> THEN t ELSE
  LET looked == Seen.clock[1]
      behind == Seen.clock[2]
      resumed == Seen.clock[3]
      rhythm == Seen.clock[4]
      gap == t - looked
      stalled == gap < 0 \/ (2 * gap > rhythm /\ looked - behind - resumed >= rhythm)
  IN  t - behind - (IF stalled THEN gap ELSE 0)

WaitersAt(t) == IF IsGone(t) THEN {} ELSE {Seen.line[i] : i \in DOMAIN Seen.line}

TimePasses ==
  LET ms == Event.at - now
      time == LineTime(Event.at)
      its(c) == {w \in WaitersAt(Event.at) : w[1] = c}
      one(c) == CHOOSE w \in its(c) : TRUE
  IN
  /\ Ages(ms)
  /\ line' = IF IsGone(Event.at) THEN <<>> ELSE line
  /\ life' = [c \in Clients |-> IF its(c) = {} THEN NoLife
                                ELSE [left |-> Max(0, EndOf(one(c)) - time), sign |-> Less(life[c].sign, ms)]]
  /\ asked' = [c \in Clients |-> IF asked[c] = NotAsked \/ its(c) = {} THEN NotAsked
                                 ELSE Max(0, ToldAt(one(c)) + TtlOf(one(c)) - time)]
  /\ now' = Event.at
  /\ UNCHANGED <<n, at, look, given, faults, idle, pace>>

----------------------------------------------------------------------------
(* What a script has left, as the trace shows it. *)

Granted(messages) == {m.f : m \in {m \in messages : m.word = "granted"}}

Agrees ==
  Event.shown =>
    LET s == Event.seen
        time == LineTime(Event.at)
    IN
    /\ lock'.own = IF s.own = <<>> THEN Nobody ELSE s.own
    /\ lock'.own # Nobody => lock'.left = s.left
    /\ line' = [i \in DOMAIN s.line |-> Field(s.line[i])]
    /\ \A i \in DOMAIN s.line :
         LET w == s.line[i] IN
         /\ life'[w[1]].left = Max(0, EndOf(w) - time)
         /\ asked'[w[1]] = IF WasAsked(w) THEN Max(0, ToldAt(w) + TtlOf(w) - time) ELSE NotAsked
    \* One script may have released several owner fields, of which only the last step is shown.
    /\ Granted(mail' \ mail) \subseteq s.told
    /\ {f \in s.told : Alive(f[1])} \subseteq Granted(mail')
    /\ s.clock # <<>> /\ s.clock[1] = Event.at => s.clock[2] = Event.at - time

Ran == Agrees /\ look' = IF Event.shown THEN at ELSE look
NothingRan == UNCHANGED <<server, mail>> /\ Ran

IsAbout(r, do) == r # NoCall /\ r.do = do /\ r.f = Event.f
UnderWay(do) == {r \in strays : IsAbout(r, do)} \cup (IF IsAbout(call[Who], do) /\ call[Who].is = "sent" THEN {call[Who]} ELSE {})

RunsOne(do) ==
  /\ \/ /\ IsAbout(call[Who], do) /\ Runs(Who)
        /\ call'[Who].is = Event.is
     \/ \E r \in strays :
          /\ IsAbout(r, do) /\ RunsLate(r)
          /\ Outcome(r).is = Event.is
  /\ Ran /\ UNCHANGED given

\* A request to take what is free finds that it is not, and lines nobody up; or the server has forgotten the script.
IsInVain(do) ==
  /\ call' = IF IsAbout(call[Who], do) THEN [call EXCEPT ![Who] = NoCall] ELSE call
  /\ NothingRan
  /\ UNCHANGED <<strays, gives, client, faults, idle, given>>

\* GivesBack of Line, also if there is nothing to give back: clients repeat a release that was not answered.
ReleaseRuns ==
  /\ Event.f \in given
  /\ Writes(Release(Event.f))
  /\ gives' = IF MayArrive(Event.f) THEN gives ELSE gives \ {Event.f}
  /\ Ran
  /\ UNCHANGED <<call, strays, client, faults, idle, given>>

----------------------------------------------------------------------------
(* What a client sends, and believes. *)

Unanswered == IF call[Who] # NoCall /\ call[Who].is = "sent" THEN {call[Who]} ELSE {}

Asks ==
  /\ Alive(Who)
  /\ Sends(Who, "acquire", Event.f, IF Event.old = <<>> THEN Nobody ELSE Event.old)
  /\ strays' = strays \cup Unanswered
  /\ st' = [st EXCEPT ![Who] = "asks"] /\ id' = [id EXCEPT ![Who] = Event.f[2]] /\ until' = [until EXCEPT ![Who] = 0]
  /\ UNCHANGED <<server, gives, mail, ask, turns, queue, ears, keeps, faults, idle, given, look>>

\* A client renews what it holds; or what it has lost, since it has not read that.
AsksForMore ==
  /\ IF st[Who] = "holds" /\ Event.f = F(Who)
     THEN Sends(Who, "renew", Event.f, Nobody) /\ strays' = strays \cup Unanswered
     ELSE /\ strays' = strays \cup {[do |-> "renew", f |-> Event.f, old |-> Nobody, left |-> Lease, sign |-> Ttl,
                                    is |-> "sent", awaited |-> FALSE, again |-> 0]}
          /\ UNCHANGED call
  /\ UNCHANGED <<server, gives, mail, client, faults, idle, given, look>>

Returns ==
  /\ given' = given \cup {Event.f} /\ gives' = gives \cup {Event.f}
  /\ IF Event.f = F(Who) /\ Alive(Who)
     THEN /\ st' = [st EXCEPT ![Who] = "free"] /\ mail' = AfterIt(Who) /\ Ends(Who)
          /\ strays' = strays \cup Unanswered /\ call' = [call EXCEPT ![Who] = NoCall]
     ELSE UNCHANGED <<call, strays, mail, st, id, until, turns, keeps>>
  /\ UNCHANGED <<server, ask, queue, ears, faults, idle, look>>

Believes ==
  /\ Event.f = F(Who)
  /\ IF st[Who] = "holds" THEN UNCHANGED <<server, network, client, faults, idle>>
     ELSE \E m \in mail : Hears(Who, m) /\ st'[Who] = "holds"
  /\ until'[Who] >= Event.left
  /\ UNCHANGED <<given, look>>

ProcessDies ==
  /\ IF st[Who] # "free" THEN Dies(Who) /\ gives' = gives /\ ears' = ears
     ELSE /\ st' = [st EXCEPT ![Who] = "dead"] /\ call' = [call EXCEPT ![Who] = NoCall]
          /\ UNCHANGED <<server, gives, mail, id, until, ask, turns, queue, ears, keeps, faults, idle>>
  /\ strays' = strays \cup Unanswered
  /\ UNCHANGED <<given, look>>

----------------------------------------------------------------------------

OfClients == {"asks", "renews", "gives back", "holds", "dies"}

\* A client reads an answer at the latest before it does something else. An answer that was lost does no harm here: what a client
\* might have believed, the server has.
MustRead == Event.do \in OfClients /\ call[Who] # NoCall /\ call[Who].is # "sent" /\ Alive(Who)
Reads == MustRead /\ IsAnswered(Who) /\ UNCHANGED <<n, at, now, look, given, pace>>

Happens ==
  /\ ~MustRead
  /\ CASE Event.do = "asks" -> Asks
       [] Event.do = "renews" -> AsksForMore
       [] Event.do = "gives back" -> Returns
       [] Event.do = "holds" -> Believes
       [] Event.do = "dies" -> ProcessDies
       [] Event.do = "acquire" -> IF Event.is \in {"contended", "error"} THEN IsInVain("acquire") ELSE RunsOne("acquire")
       [] Event.do = "renew" -> IF Event.is = "error" THEN IsInVain("renew") ELSE RunsOne("renew")
       [] Event.do = "release" -> ReleaseRuns
  /\ (OneHolder /\ TheServerKnows)'
  /\ at' = at + 1
  /\ UNCHANGED <<n, now, pace>>

\* For whoever looks for the reason: what Line leaves after such a script, and what Line has of the client.
Shown(s) == [lock |-> s.lock, line |-> s.line, told |-> {m.f : m \in s.out},
             left |-> [i \in DOMAIN s.line |-> s.life[s.line[i][1]].left],
             asked |-> [i \in DOMAIN s.line |-> s.asked[s.line[i][1]]]]
InLine ==
  CASE Event.do \in {"acquire", "renew"} -> {[is |-> Outcome(r).is, leaves |-> Shown(Outcome(r).s)] : r \in UnderWay(Event.do)}
    [] Event.do = "release" -> {[is |-> "released", leaves |-> Shown(Release(Event.f))]}
    [] OTHER -> {[does |-> st[Who], f |-> F(Who), until |-> until[Who], told |-> {m \in mail : m.f[1] = Who}]}

IsRejected ==
  /\ PrintT(<<"rejected", broken, Traces[n].seed, at>>)
  /\ PrintT(<<"the trace:", Event, "time in line:", LineTime(Event.at)>>)
  /\ PrintT(<<"in Line before:", Shown(Now)>>)
  /\ PrintT(<<"in Line after it:", InLine>>)
  /\ UNCHANGED <<vars, n, at, now, look, given>>

IsAccepted ==
  /\ at = Len(Steps) + 1
  /\ PrintT(<<"accepted", broken, Traces[n].seed, Len(Steps)>>)
  /\ at' = at + 1
  /\ UNCHANGED <<vars, n, now, look, given>>

TraceNext ==
  /\ \/ /\ at <= Len(Steps)
        /\ IF now < Event.at THEN TimePasses
           ELSE IF MustRead THEN Reads
           ELSE IF ~Explains \/ ENABLED Happens THEN Happens
           ELSE IsRejected
     \/ IsAccepted
  /\ UNCHANGED broken

TraceInit == Init /\ broken \in Rules /\ n \in DOMAIN Traces /\ at = 1 /\ now = 0 /\ look = 0 /\ given = {}

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, broken, n, at, now, look, given>>
=============================================================================
