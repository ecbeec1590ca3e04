------------------------------- MODULE Line -------------------------------
(* How clients wait for one plain lock on one server that keeps its data: the line, the grant by message, signs of   *)
(* life, the hand-over within a client, and the kept lock. README.md says which variable is which line of code.      *)
(*                                                                                                                   *)
(* Time. Every time is a number of ticks that are left. There is no clock that grows, so the world is finite.        *)
(* All clocks run at the same speed. A tick passes only when all work that is due has been done. A tick that does    *)
(* not wait for it is a fault, and then anything may be late.                                                        *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Clients,    \* the clients, as model values
  Keepers,    \* those that keep an idle lock
  Nobody,     \* no owner field
  Lease,      \* Config::watchdog_timeout, in ticks
  Ttl,        \* Config::waiter_ttl, in ticks; no longer than Lease
  Window,     \* how many waiters at the front show signs of life
  Budget,     \* how often a client hands a tenure on before it asks the server
  Crowded,    \* the clients in which another caller may queue behind the one that contends or holds
  Listening,  \* the clients that hear messages from the beginning
  Faults,     \* how many faults may happen
  Kinds,      \* which
  Bound,      \* for how many ticks after the last fault a lock may be unused while a live caller waits for it
  Patience,   \* for how many ticks a caller holds at most, and then each client has one new caller a tick at most; 0: no limits
  Broken      \* the rule that is left out: "none", or a name from mutations.tsv

VARIABLES
  \* What lies in the server.
  lock,       \* the holder's owner field, and for how long
  line,       \* the owner fields of the waiters
  life,       \* of each client: for how long it counts as alive, and what is left of that by its own count
  asked,      \* of each client: in how many ticks it is dead, because it was told to show a sign; or NotAsked
  near,       \* the waiters that were told to show signs of life by themselves
  \* What is under way.
  call,       \* the request of each client that it waits for, with the answer if it has run
  strays,     \* requests of lost connections: each may run once, or never
  gives,      \* the owner fields that clients give back in the background
  mail,       \* messages
  \* What a client knows.
  st,         \* what it does
  id,         \* the number in its owner field
  until,      \* how long it believes in its tenure
  ask,        \* when it asks by itself
  turns,      \* how often it has handed this tenure on
  queue,      \* its callers that wait behind the one that contends or holds
  ears,       \* whether messages reach it
  keeps,      \* whether it may keep what it is granted
  \* What the judge knows.
  faults,     \* how many faults may still happen
  idle,       \* for how many ticks the lock was unused although a live caller waits
  pace        \* with Patience: for how many ticks each holder has held, and to which clients a caller has come in this tick

server  == <<lock, line, life, asked, near>>
network == <<call, strays, gives, mail>>
client  == <<st, id, until, ask, turns, queue, ears, keeps>>
vars    == <<server, network, client, faults, idle, pace>>

Is(rule) == Broken = rule
Min(a, b) == IF a < b THEN a ELSE b
Less(n, ticks) == IF n > ticks THEN n - ticks ELSE IF n > 0 THEN 0 ELSE n
NotAsked == -1
\* Trace.tla replaces this and some other definitions by finer ones: a tick there is a millisecond.
LeastLife == 0
NoCall == [do |-> "nothing"]
NoLife == [left |-> 0, sign |-> 0]
ClientOf(f) == f[1]
F(c) == <<c, id[c]>>
Alive(c) == st[c] # "dead"
Holds(c) == st[c] \in {"holds", "keeps"}
Wants(c) == st[c] \in {"asks", "waits"} \/ (st[c] = "free" /\ queue[c] > 0)
\* Valid by the client's own deadline: what Guard::is_valid says.
Valid(c) == st[c] = "holds" /\ until[c] > 0

\* An owner field is never used again. To stay finite, the model uses a number again when nothing mentions it any more.
Mentioned(c) ==
  {f[2] : f \in {f \in {lock.own} \cup {line[i] : i \in DOMAIN line} \cup gives \cup {m.f : m \in mail}
                        \cup {r.f : r \in strays} \cup {r.old : r \in strays} : f # Nobody /\ f[1] = c}}
    \cup (IF call[c] = NoCall THEN {} ELSE {call[c].f[2]}) \cup {id[c]}
Fresh(c) == CHOOSE n \in 1..9 : n \notin Mentioned(c) /\ \A k \in 1..(n - 1) : k \in Mentioned(c)

----------------------------------------------------------------------------
(* The scripts. Each is one step. It takes what lies in the server as a record, and returns it with its messages. *)

Now == [lock |-> lock, line |-> line, life |-> life, asked |-> asked, near |-> near, out |-> {}]

Without(seq, f) == SelectSeq(seq, LAMBDA g : g # f)
LinesUp(seq, f) == Append(seq, f)
Stands(s, f) == \E i \in DOMAIN s.line : s.line[i] = f
Lives(s, f) == s.life[ClientOf(f)].left > LeastLife
Dead(s, f) == ~Lives(s, f) /\ s.asked[ClientOf(f)] = 0 /\ ~Is("the dead stay")

\* A message is heard by a client that listens. One that has died may still seem to.
Say(s, word, f, sign) ==
  IF ~ears[ClientOf(f)] \/ ~Alive(ClientOf(f)) \/ (word # "granted" /\ f # F(ClientOf(f))) THEN s
  ELSE [s EXCEPT !.out = @ \cup {[word |-> word, f |-> f, sign |-> sign, proved |-> TRUE]}]

\* The life of a client goes with the last of its entries.
Leave(s, f) ==
  LET rest == Without(s.line, f)
      last == ~\E i \in DOMAIN rest : ClientOf(rest[i]) = ClientOf(f)
  IN  [s EXCEPT !.line = rest, !.near = @ \ {f},
         !.life[ClientOf(f)] = IF last THEN NoLife ELSE @,
         !.asked[ClientOf(f)] = IF last THEN NotAsked ELSE @]

\* The head gets what is free. A silent head blocks the line until it shows a sign, or is dead. A grant by message lasts
\* as long as the sign of life for which it is made.
RECURSIVE Admit(_, _)
Admit(s, asker) ==
  IF s.lock.own # Nobody \/ s.line = <<>> THEN s ELSE
  LET head == IF Is("the last comes first") THEN s.line[Len(s.line)] ELSE s.line[1]
      its == s.life[ClientOf(head)]
      gone == Leave(s, head)
  IN  CASE Dead(s, head) -> Admit(gone, asker)
        [] head = asker -> [gone EXCEPT !.lock = [own |-> head, left |-> Lease]]
        [] Lives(s, head) ->
             LET left == IF Is("a grant ends early") THEN 1 ELSE its.left
                 given == [gone EXCEPT !.lock = [own |-> head, left |-> left]]
             IN  IF Is("nobody is told") THEN given ELSE Say(given, "granted", head, its.sign)
        [] OTHER -> IF Is("the silent are passed over") THEN Admit(gone, asker) ELSE s

\* Goes through the front until so many waiters count as awake. Each that does not show signs by itself is told to. A
\* silent one is dead if it does not answer for Ttl.
RECURSIVE Look(_, _, _, _)
Look(s, asker, i, awake) ==
  IF i > Len(s.line) \/ awake >= Window THEN s ELSE
  LET f == s.line[i]
      c == ClientOf(f)
      known == [s EXCEPT !.near = @ \cup {f}]
      heard == awake + (IF ears[c] THEN 1 ELSE 0)
      told == IF Is("who comes near is not told") THEN known ELSE Say(known, "near", f, 0)
      warned == [known EXCEPT !.asked[c] = IF @ = NotAsked THEN Ttl ELSE @]
  IN  CASE Dead(s, f) -> Look(Leave(s, f), asker, i, awake)
        [] f = asker \/ (Lives(s, f) /\ f \in s.near) -> Look(known, asker, i + 1, awake + 1)
        [] Lives(s, f) -> Look(told, asker, i + 1, heard)
        [] OTHER -> Look(IF Is("the silent are not told") THEN warned ELSE Say(warned, "silent", f, 0),
                         asker, i + 1, heard)

Settle(s, asker) == Look(Admit(s, asker), asker, 1, 0)

TellKeeper(s) ==
  IF s.lock.own # Nobody /\ ClientOf(s.lock.own) \in Keepers /\ ~Is("the keeper is not told")
  THEN Say(s, "wanted", s.lock.own, 0) ELSE s

\* The server and the answer.
Acquire(r) ==
  LET f == r.f
      c == ClientOf(f)
      free == IF Now.lock.own = r.old /\ r.old # Nobody THEN [Now EXCEPT !.lock = [own |-> Nobody, left |-> 0]] ELSE Now
      taken(s) == [s |-> [s EXCEPT !.lock = [own |-> f, left |-> Lease]],
                   is |-> "granted", awaited |-> s.line # <<>>, again |-> 0]
      signed == [free EXCEPT !.life[c] = [left |-> Ttl, sign |-> Min(Ttl, r.sign)], !.asked[c] = NotAsked,
                             !.line = IF Stands(free, f) THEN @ ELSE LinesUp(@, f)]
      then == Settle(signed, f)
      again == IF f \in then.near \/ then.lock.own = Nobody THEN 1 ELSE then.lock.left
  IN  CASE free.lock.own = f -> taken(free)
        [] free.lock.own = Nobody /\ (free.line = <<>> \/ Is("a newcomer passes the line")) -> taken(free)
        [] Is("room is taken twice") /\ free.line = <<>> -> taken(free)
        [] then.lock.own = f -> taken(then)
        [] OTHER -> [s |-> TellKeeper(then), is |-> "waits", awaited |-> TRUE, again |-> again]

Release(f) ==
  LET gone == IF lock.own = f \/ (Is("a release removes any holder") /\ lock.own # Nobody)
              THEN [Now EXCEPT !.lock = [own |-> Nobody, left |-> 0]]
              ELSE Leave(Now, f)
  IN  IF Is("room is not given") THEN gone ELSE Settle(gone, Nobody)

Renew(r) ==
  IF lock.own = r.f THEN [s |-> [Now EXCEPT !.lock.left = Lease], is |-> "renewed", awaited |-> TRUE, again |-> 0]
  ELSE [s |-> Now, is |-> "gone", awaited |-> TRUE, again |-> 0]

Writes(s) ==
  /\ lock' = s.lock /\ line' = s.line /\ life' = s.life /\ asked' = s.asked /\ near' = s.near
  /\ mail' = mail \cup s.out

Outcome(r) == IF r.do = "acquire" THEN Acquire(r) ELSE Renew(r)

----------------------------------------------------------------------------
(* Requests run. *)

Runs(c) ==
  /\ call[c] # NoCall /\ call[c].is = "sent"
  /\ LET o == Outcome(call[c]) IN
     /\ Writes(o.s)
     /\ call' = [call EXCEPT ![c].is = o.is, ![c].awaited = o.awaited, ![c].again = o.again, ![c].old = Nobody,
                             ![c].sign = 0, ![c].left = IF o.is \in {"granted", "renewed"} THEN @ ELSE 0]
  /\ UNCHANGED <<strays, gives, client, faults, idle>>

RunsLate(r) ==
  /\ Writes(Outcome(r).s)
  /\ strays' = strays \ {r}
  /\ UNCHANGED <<call, gives, client, faults, idle>>

\* A release is repeated for as long as the acquire may still arrive.
MayArrive(f) == \E r \in strays : r.f = f /\ r.do = "acquire"
GivesBack(f) ==
  /\ Writes(Release(f))
  /\ gives' = IF MayArrive(f) /\ ~Is("a late request is not looked for") THEN gives ELSE gives \ {f}
  /\ gives' # gives \/ server' # server
  /\ UNCHANGED <<call, strays, client, faults, idle>>

----------------------------------------------------------------------------
(* What clients do. *)

Sends(c, do, f, old) ==
  call' = [call EXCEPT ![c] = [do |-> do, f |-> f, old |-> old, left |-> Lease, sign |-> Ttl, is |-> "sent",
                               awaited |-> FALSE, again |-> 0]]

\* A caller comes to a crowded client, and queues.
Comes(c) ==
  /\ Alive(c) /\ st[c] # "free" /\ c \in Crowded /\ queue[c] = 0
  /\ queue' = [queue EXCEPT ![c] = 1]
  /\ UNCHANGED <<server, network, st, id, until, ask, turns, ears, keeps, faults, idle>>

\* The next caller contends; `left` callers queue behind it. The last holder has its answer by then. The client may keep what it
\* is granted only if it has heard everything since before it asks.
Begins(c, left) ==
  /\ st[c] = "free" /\ call[c] = NoCall
  /\ ~\E f \in gives : ClientOf(f) = c /\ ~MayArrive(f)
  /\ LET n == Fresh(c) IN id' = [id EXCEPT ![c] = n] /\ Sends(c, "acquire", <<c, n>>, Nobody)
  /\ st' = [st EXCEPT ![c] = "asks"]
  /\ queue' = [queue EXCEPT ![c] = left]
  /\ keeps' = [keeps EXCEPT ![c] = c \in Keepers /\ ears[c]]
  /\ UNCHANGED <<server, strays, gives, mail, until, ask, turns, ears, faults, idle>>

\* A caller comes to a client in which nobody waits. A caller in the queue goes on.
ComesFirst(c) == queue[c] = 0 /\ Begins(c, 0)
GoesOn(c) == queue[c] > 0 /\ Begins(c, queue[c] - 1)

AsksAgain(c) ==
  /\ st[c] = "waits" /\ ask[c] = 0 /\ call[c] = NoCall
  /\ Sends(c, "acquire", F(c), Nobody)
  /\ st' = [st EXCEPT ![c] = "asks"]
  /\ keeps' = [keeps EXCEPT ![c] = c \in Keepers /\ ears[c]]
  /\ UNCHANGED <<server, strays, gives, mail, id, until, ask, turns, queue, ears, faults, idle>>

\* The watchdog confirms and renews.
Renews(c) ==
  /\ Holds(c) /\ until[c] = 1 /\ call[c] = NoCall
  /\ Sends(c, "renew", F(c), Nobody)
  /\ UNCHANGED <<server, strays, gives, mail, client, faults, idle>>

\* The deadline counts from before the request was sent.
From(r) == IF Is("a lease counts from its answer") THEN Lease ELSE r.left

\* What a client would not heed any more is gone from the mail: so the model has fewer states.
WhileItHolds(c) == {m \in mail : ClientOf(m.f) # c \/ m.word = "wanted" \/ (m.word = "granted" /\ m.f # F(c))}
AfterIt(c) == {m \in mail : ClientOf(m.f) # c \/ m.word = "granted"}

Ends(c) == \* the client has the tenure no more, and nothing of it
  /\ id' = [id EXCEPT ![c] = 0] /\ until' = [until EXCEPT ![c] = 0] /\ turns' = [turns EXCEPT ![c] = 0]
  /\ keeps' = [keeps EXCEPT ![c] = FALSE]

IsAnswered(c) ==
  LET r == call[c] IN
  /\ r # NoCall /\ r.is # "sent" /\ Alive(c)
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ CASE r.is = "granted" ->
            \* A grant that arrives after its lease is no grant.
            IF From(r) > 0
            THEN /\ st' = [st EXCEPT ![c] = "holds"] /\ until' = [until EXCEPT ![c] = From(r)]
                 /\ ask' = [ask EXCEPT ![c] = 0]
                 /\ keeps' = [keeps EXCEPT ![c] = IF Is("an answer lets it keep") THEN c \in Keepers
                                                 ELSE @ /\ ~r.awaited]
                 /\ mail' = WhileItHolds(c)
                 /\ UNCHANGED <<gives, id, turns, queue>>
            ELSE /\ st' = [st EXCEPT ![c] = "free"] /\ queue' = [queue EXCEPT ![c] = @ + 1]
                 /\ gives' = gives \cup {r.f} /\ ask' = [ask EXCEPT ![c] = 0] /\ mail' = AfterIt(c) /\ Ends(c)
       [] r.is = "waits" ->
            /\ st' = [st EXCEPT ![c] = "waits"]
            /\ ask' = [ask EXCEPT ![c] = IF Is("who is far never asks") /\ r.again > 1 THEN Lease + 1 ELSE r.again]
            /\ UNCHANGED <<gives, mail, id, until, turns, queue, keeps>>
       [] r.is = "renewed" /\ Holds(c) /\ r.f = F(c) /\ until[c] > 0 ->
            /\ until' = [until EXCEPT ![c] = IF From(r) > @ THEN From(r) ELSE @]
            /\ UNCHANGED <<gives, mail, st, id, ask, turns, queue, keeps>>
       [] r.is = "gone" /\ Holds(c) /\ r.f = F(c) ->
            /\ st' = [st EXCEPT ![c] = "free"] /\ gives' = gives \cup {r.f} /\ mail' = AfterIt(c) /\ Ends(c)
            /\ UNCHANGED <<ask, queue>>
       [] OTHER -> UNCHANGED <<gives, mail, st, id, until, ask, turns, queue, keeps>>
  /\ UNCHANGED <<server, strays, ears, faults, idle>>

\* The client listens from now on. It may have missed something, so it asks once more, and keeps nothing.
Subscribes(c) ==
  /\ ~ears[c] /\ (st[c] = "waits" \/ (Alive(c) /\ c \in Keepers))
  /\ ears' = [ears EXCEPT ![c] = TRUE]
  /\ ask' = [ask EXCEPT ![c] = IF Is("who begins to listen does not ask") THEN @ ELSE 0]
  /\ IF st[c] = "keeps" /\ ~Is("the deaf keep")
     THEN st' = [st EXCEPT ![c] = "free"] /\ gives' = gives \cup {F(c)} /\ mail' = AfterIt(c) /\ Ends(c)
     ELSE /\ keeps' = [keeps EXCEPT ![c] = @ /\ Is("the deaf keep")]
          /\ UNCHANGED <<st, gives, mail, id, until, turns>>
  /\ UNCHANGED <<server, call, strays, queue, faults, idle>>

\* A contender believes a grant by message only if the message proves it, and names the owner field under which it asks.
\* While its request is under way, it reads no message: the answer comes first.
Hears(c, m) ==
  LET believed == m.proved \/ Is("a grant needs no proof")
      ours == m.f = F(c) \/ (Is("a grant for any owner field is taken") /\ st[c] = "waits")
      left == IF Is("a grant counts from its arrival") THEN Ttl ELSE m.sign
  IN
  /\ ClientOf(m.f) = c /\ Alive(c) /\ (m.word # "wanted" => st[c] # "asks")
  /\ CASE m.word = "granted" /\ believed /\ ours /\ st[c] = "waits" ->
            IF left > 0
            THEN /\ st' = [st EXCEPT ![c] = "holds"] /\ until' = [until EXCEPT ![c] = left]
                 /\ id' = [id EXCEPT ![c] = m.f[2]] /\ keeps' = [keeps EXCEPT ![c] = FALSE]
                 /\ ask' = [ask EXCEPT ![c] = 0]
                 /\ UNCHANGED gives
            ELSE ask' = [ask EXCEPT ![c] = 0] /\ UNCHANGED <<gives, st, id, until, keeps>>
       [] m.word = "granted" /\ believed /\ ~ours ->
            gives' = gives \cup {m.f} /\ UNCHANGED <<st, id, until, ask, keeps>>
       [] m.word \in {"near", "silent"} /\ ours /\ st[c] = "waits" ->
            /\ ask' = [ask EXCEPT ![c] = IF m.word = "silent" THEN 0 ELSE Min(@, 1)]
            /\ UNCHANGED <<gives, st, id, until, keeps>>
       [] m.word = "wanted" /\ m.f = F(c) ->
            /\ keeps' = [keeps EXCEPT ![c] = @ /\ Is("a holder that was told keeps")]
            /\ IF st[c] = "keeps"
               THEN /\ st' = [st EXCEPT ![c] = "free"] /\ gives' = gives \cup {m.f}
                    /\ id' = [id EXCEPT ![c] = 0] /\ until' = [until EXCEPT ![c] = 0] /\ UNCHANGED ask
               ELSE UNCHANGED <<gives, st, id, until, ask>>
       [] OTHER -> UNCHANGED <<gives, st, id, until, ask, keeps>>
  /\ turns' = [turns EXCEPT ![c] = IF st'[c] = "free" THEN 0 ELSE @]
  /\ mail' = IF m.word = "granted" /\ st'[c] = "holds" THEN WhileItHolds(c) \ {m}
             ELSE IF m.word = "wanted" /\ st'[c] = "free" THEN AfterIt(c) ELSE mail \ {m}
  /\ UNCHANGED <<server, call, strays, queue, ears, faults, idle>>

HearsOne(c) == \E m \in mail : Hears(c, m)

\* A holder leaves. Its client hands the tenure on within the budget if that is as good as a grant, keeps it, or gives it
\* back; or the next caller gives it back and asks anew in one step.
MayHandOn(c) ==
  /\ turns[c] < Budget \/ Is("there is no budget")
  /\ until[c] > 1 \/ Is("a tenure is handed on after its deadline")

HandsOn(c) ==
  /\ st[c] = "holds" /\ queue[c] > 0 /\ call[c] = NoCall /\ MayHandOn(c)
  /\ queue' = [queue EXCEPT ![c] = @ - 1]
  /\ turns' = [turns EXCEPT ![c] = Min(@ + 1, Budget)]
  /\ UNCHANGED <<server, network, st, id, until, ask, ears, keeps, faults, idle>>

Exchanges(c) ==
  /\ Valid(c) /\ queue[c] > 0 /\ call[c] = NoCall
  /\ LET n == Fresh(c) IN id' = [id EXCEPT ![c] = n] /\ Sends(c, "acquire", <<c, n>>, F(c))
  /\ st' = [st EXCEPT ![c] = "asks"]
  /\ queue' = [queue EXCEPT ![c] = @ - 1]
  /\ until' = [until EXCEPT ![c] = 0] /\ turns' = [turns EXCEPT ![c] = 0]
  /\ keeps' = [keeps EXCEPT ![c] = c \in Keepers /\ ears[c]]
  /\ mail' = AfterIt(c)
  /\ UNCHANGED <<server, strays, gives, ask, ears, faults, idle>>

Unlocks(c) ==
  /\ Valid(c) /\ queue[c] = 0 /\ call[c] = NoCall
  /\ IF keeps[c]
     THEN st' = [st EXCEPT ![c] = "keeps"] /\ UNCHANGED <<gives, mail, id, until, turns, keeps>>
     ELSE st' = [st EXCEPT ![c] = "free"] /\ gives' = gives \cup {F(c)} /\ mail' = AfterIt(c) /\ Ends(c)
  /\ UNCHANGED <<server, call, strays, ask, queue, ears, faults, idle>>

PicksUp(c) ==
  /\ st[c] = "keeps" /\ queue[c] > 0 /\ (until[c] > 1 \/ Is("a kept lock is taken after its deadline"))
  /\ st' = [st EXCEPT ![c] = "holds"]
  /\ queue' = [queue EXCEPT ![c] = @ - 1]
  /\ UNCHANGED <<server, network, id, until, ask, turns, ears, keeps, faults, idle>>

\* Past its deadline a tenure is lost, also one that is kept.
Loses(c) ==
  /\ Holds(c) /\ until[c] = 0
  /\ st' = [st EXCEPT ![c] = "free"] /\ gives' = gives \cup {F(c)} /\ mail' = AfterIt(c) /\ Ends(c)
  /\ UNCHANGED <<server, call, strays, ask, queue, ears, faults, idle>>

----------------------------------------------------------------------------
(* Time, and faults. *)

Due ==
  \/ mail # {}
  \/ \E f \in gives : lock.own = f \/ Stands(Now, f) \/ ~MayArrive(f)
  \/ \E c \in Clients : Alive(c) /\
       \/ call[c] # NoCall
       \/ st[c] = "free" /\ queue[c] > 0
       \/ st[c] = "keeps" /\ queue[c] > 0
       \/ st[c] = "waits" /\ (ask[c] = 0 \/ ~ears[c])
       \/ c \in Keepers /\ ~ears[c]
       \/ Holds(c) /\ until[c] <= 1
       \/ st[c] = "holds" /\ Patience > 0 /\ pace.held[c] >= Patience

InUse == \E c \in Clients : Valid(c)
Unused == ~InUse /\ \E c \in Clients : Wants(c)

Older(r, ticks) == [r EXCEPT !.left = Less(@, ticks), !.sign = Less(@, ticks)]
IsOver(left, ticks) == left <= ticks
MayStillRun(r, ticks) == r.left > ticks

\* All that ages, but for the line: Trace.tla lets time pass there by another clock.
Ages(ticks) ==
  /\ lock' = IF IsOver(lock.left, ticks) THEN [own |-> Nobody, left |-> 0] ELSE [lock EXCEPT !.left = @ - ticks]
  /\ call' = [c \in Clients |-> IF call[c] = NoCall THEN NoCall ELSE Older(call[c], ticks)]
  /\ strays' = {Older(r, ticks) : r \in {r \in strays : MayStillRun(r, ticks)}}
  /\ mail' = {[m EXCEPT !.sign = Less(@, ticks)] : m \in mail}
  /\ until' = [c \in Clients |-> Less(until[c], ticks)]
  /\ ask' = [c \in Clients |-> IF ask[c] > Lease THEN ask[c] ELSE Less(ask[c], ticks)]
  /\ UNCHANGED <<near, gives, st, id, turns, queue, ears, keeps>>

Passes ==
  /\ Ages(1) /\ UNCHANGED line
  /\ life' = [c \in Clients |-> [left |-> Less(life[c].left, 1), sign |-> Less(life[c].sign, 1)]]
  /\ asked' = [c \in Clients |-> IF life[c].left > 0 THEN asked[c] ELSE Less(asked[c], 1)]

Tick ==
  /\ ~Due
  /\ Passes
  /\ idle' = IF Unused THEN Min(idle + 1, Bound + 1) ELSE 0
  /\ UNCHANGED faults

May(kind) == kind \in Kinds /\ faults > 0
Spend == faults' = faults - 1 /\ idle' = 0

LateTick == May("late") /\ Due /\ Passes /\ Spend

LosesMail(m) ==
  /\ May("lost") /\ mail' = mail \ {m} /\ Spend
  /\ UNCHANGED <<server, call, strays, gives, client>>

\* Somebody who may only listen and publish knows no secret.
Forges(c) ==
  /\ May("forged") /\ st[c] = "waits" /\ ears[c]
  /\ mail' = mail \cup {[word |-> "granted", f |-> F(c), sign |-> Ttl, proved |-> FALSE]}
  /\ Spend
  /\ UNCHANGED <<server, call, strays, gives, client>>

\* The connection for requests is lost. The request may still run; its client cannot know. So the caller asks under
\* another owner field, and its client gives back what the former one may have got.
Cuts(c) ==
  LET r == call[c] IN
  /\ May("cut") /\ r # NoCall /\ Alive(c)
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ strays' = IF r.is = "sent" THEN strays \cup {r} ELSE strays
  /\ IF r.do = "acquire"
     THEN /\ gives' = gives \cup ({r.f, r.old} \ {Nobody}) /\ st' = [st EXCEPT ![c] = "free"]
          /\ queue' = [queue EXCEPT ![c] = @ + 1] /\ ask' = [ask EXCEPT ![c] = 0]
          /\ mail' = AfterIt(c) /\ Ends(c)
     ELSE UNCHANGED <<gives, mail, st, queue, ask, id, until, turns, keeps>>
  /\ Spend
  /\ UNCHANGED <<server, ears>>

\* The connection for messages is lost.
Deafens(c) ==
  /\ May("deaf") /\ Alive(c) /\ ears[c]
  /\ ears' = [ears EXCEPT ![c] = FALSE]
  /\ mail' = {m \in mail : ClientOf(m.f) # c}
  /\ Spend
  /\ UNCHANGED <<server, call, strays, gives, st, id, until, ask, turns, queue, keeps>>

\* The waiting caller goes, and no other one waits.
Cancels(c) ==
  /\ May("cancel") /\ st[c] = "waits"
  /\ st' = [st EXCEPT ![c] = "free"] /\ ask' = [ask EXCEPT ![c] = 0]
  /\ gives' = gives \cup {F(c)} /\ mail' = AfterIt(c) /\ Ends(c)
  /\ Spend
  /\ UNCHANGED <<server, call, strays, queue, ears>>

\* A process dies. What it has sent may still run. It may seem to hear.
Dies(c) ==
  /\ May("death") /\ Alive(c) /\ st[c] # "free"
  /\ st' = [st EXCEPT ![c] = "dead"]
  /\ call' = [call EXCEPT ![c] = NoCall]
  /\ strays' \in {strays} \cup (IF call[c] # NoCall /\ call[c].is = "sent" THEN {strays \cup {call[c]}} ELSE {})
  /\ gives' \in {gives, {f \in gives : ClientOf(f) # c}}
  /\ ears' \in {ears, [ears EXCEPT ![c] = FALSE]}
  /\ mail' = {m \in mail : ClientOf(m.f) # c}
  /\ queue' = [queue EXCEPT ![c] = 0] /\ ask' = [ask EXCEPT ![c] = 0] /\ Ends(c)
  /\ Spend
  /\ UNCHANGED server

Fault ==
  \/ LateTick
  \/ \E m \in mail : LosesMail(m)
  \/ \E c \in Clients : Forges(c) \/ Cuts(c) \/ Deafens(c) \/ Cancels(c) \/ Dies(c)

----------------------------------------------------------------------------

Init ==
  /\ lock = [own |-> Nobody, left |-> 0] /\ line = <<>> /\ near = {}
  /\ life = [c \in Clients |-> NoLife] /\ asked = [c \in Clients |-> NotAsked]
  /\ call = [c \in Clients |-> NoCall] /\ strays = {} /\ gives = {} /\ mail = {}
  /\ st = [c \in Clients |-> "free"] /\ id = [c \in Clients |-> 0] /\ until = [c \in Clients |-> 0]
  /\ ask = [c \in Clients |-> 0] /\ turns = [c \in Clients |-> 0] /\ queue = [c \in Clients |-> 0]
  /\ ears = [c \in Clients |-> c \in Listening] /\ keeps = [c \in Clients |-> FALSE]
  /\ faults = Faults /\ idle = 0 /\ pace = [held |-> [c \in Clients |-> 0], came |-> {}]

Leaves(c) == HandsOn(c) \/ Exchanges(c) \/ Unlocks(c)
Acts(c) == Runs(c) \/ GoesOn(c) \/ AsksAgain(c) \/ Subscribes(c) \/ PicksUp(c) \/ Loses(c) \/ HearsOne(c)

\* Nobody but the client itself can tell when it reads an answer or sends what is due, unless a tick or a fault comes first. So
\* these steps come before those of others. That leaves out orders of no consequence.
Answered(c) == Alive(c) /\ call[c] # NoCall /\ call[c].is # "sent"
ToRenew(c) == Holds(c) /\ until[c] = 1 /\ call[c] = NoCall
ToAsk(c) == st[c] = "waits" /\ ask[c] = 0 /\ call[c] = NoCall /\ ~\E m \in mail : ClientOf(m.f) = c
ActsFirst(c) == IsAnswered(c) \/ (ToRenew(c) /\ Renews(c)) \/ (ToAsk(c) /\ AsksAgain(c))
IsUrgent == \E c \in Clients : Answered(c) \/ ToRenew(c) \/ ToAsk(c)
GivesOneBack(c) == \E f \in gives : ClientOf(f) = c /\ GivesBack(f)

Step ==
  \/ \E c \in Clients : ActsFirst(c)
  \/ ~IsUrgent /\ \E c \in Clients : Acts(c) \/ Leaves(c) \/ GivesOneBack(c)

\* How long each holder has held.
GoesOnHolding(c) == st[c] = "holds" /\ st'[c] = "holds" /\ queue'[c] >= queue[c]
Held(n) == [c \in Clients |-> IF Patience > 0 /\ GoesOnHolding(c) THEN Min(pace.held[c] + n, Patience) ELSE 0]
InTick(came) == pace' = [held |-> Held(0), came |-> came]

Proceeds ==
  \/ Step /\ InTick(pace.came)
  \/ ~IsUrgent /\ Tick /\ pace' = [held |-> Held(1), came |-> {}]

Next ==
  \/ Proceeds
  \/ ~IsUrgent /\ \E c \in Clients \ pace.came :
       (Comes(c) \/ ComesFirst(c)) /\ InTick(IF Patience > 0 THEN pace.came \cup {c} ELSE {})
  \/ ~IsUrgent /\ (\E r \in strays : RunsLate(r)) /\ InTick(pace.came)
  \/ Fault /\ InTick(pace.came)

Spec == Init /\ [][Next]_vars

\* What is due is done, and time passes. Nobody has to come, and no fault has to happen. A tick waits for all that is due, and with
\* Patience only a finite number of steps lies between two ticks. So no other fairness is needed.
Fair == []<><<TRUE>>_vars

FairSpec == Spec /\ Fair

----------------------------------------------------------------------------
(* What is promised. *)

\* S1: at most one hold is valid.
OneHolder == \A c, d \in Clients : Valid(c) /\ Valid(d) => c = d

\* S1, more strictly: the server has every hold that its client believes in, and for at least as long.
TheServerKnows == \A c \in Clients : Holds(c) /\ until[c] > 0 => lock.own = F(c) /\ lock.left >= until[c]

\* S7: a hold begins with a tenure that is not over, also one that was handed on or kept.
HoldsBeginValid ==
  [][\A c \in Clients :
       (st'[c] = "holds" /\ (st[c] # "holds" \/ queue'[c] < queue[c])) => until'[c] > 0]_vars

\* A script leaves no room beside a head that is alive.
RoomIsGiven ==
  [][server' # server /\ ~Passes
       => ~(lock'.own = Nobody /\ line' # <<>> /\ life'[ClientOf(line'[1])].left > 0)]_vars

\* L2, L8: no live caller waits beside an unused lock for longer than this, counted from the last fault.
NobodySleeps == idle <= Bound

\* Before any fault, the waiters at the front show signs of life, or are about to hear that they should. One that does not listen
\* yet asks as soon as it does.
FrontIsAwake ==
  faults = Faults =>
    \A i \in 1..Min(Window, Len(line)) :
      LET c == ClientOf(line[i]) IN
      (st[c] = "waits" /\ line[i] = F(c)) => (ask[c] <= 1 \/ ~ears[c] \/ \E m \in mail : m.f = line[i])

\* L8: before any fault, no live waiter is removed from the line.
NobodyIsSkipped ==
  [][\A i \in DOMAIN line :
       LET f == line[i] IN
       (~(\E k \in DOMAIN line' : line'[k] = f) /\ faults' = Faults) => (lock'.own = f \/ f \in gives)]_vars

\* Every live caller that waits gets the lock.
EverybodyComesIn == \A c \in Clients : Wants(c) ~> ~Wants(c)

Symmetric ==
  Permutations(Clients \cap Keepers \cap Crowded) \cup Permutations(Clients \ (Keepers \cup Crowded))
=============================================================================
