------------------------------ MODULE Session ------------------------------
(* Holds that end with the process: `Config::session`. README.md says what it showed.                                *)
(*                                                                                                                   *)
(* A client listens to a channel of its own, on one connection at a time, and sends a beat there and hears it. A     *)
(* hold counts until a grace after the sending of the last beat that was heard. The head of a line looks at how many *)
(* listen to the holder's channel. If that was nobody, and still is a grace later, the head has the lock. When a     *)
(* client listens on a new connection, it renews its hold, which erases what heads have noted.                       *)
(*                                                                                                                   *)
(* One holder, one server that keeps its data, and any number of heads, which look whenever they like. Leases are    *)
(* left out: they end holds, too, and nothing here prolongs one. All clocks go alike.                                *)
EXTENDS Integers, FiniteSets

CONSTANTS
  Grace,
  End,          \* the last time
  Connections,  \* how many connections for messages the holder may open
  Prompt,       \* heads look in each tick, and no request runs late
  Broken        \* the rule that is left out: "none", or a name from mutations.tsv

VARIABLES
  time,
  alive, died,  \* the holder's process, and when it died; -1: it has not
  link,         \* the number of the connection that the holder uses
  listens,      \* the connections on which it listens, as the server sees it
  was,          \* those on which it has ever listened
  heard,        \* the holder knows that it listens on `link`
  wrote,        \* the connection for which it has sent its last renewal
  writes,       \* renewals under way, each by the connection for which it was sent
  answers,      \* to renewals, under way: whether the lock was still the holder's
  known,        \* the connection on whose beats the hold counts: the last renewal that was answered was sent for it
  beats,        \* under way: on which connection, sent when, and whether it has reached the channel
  last,         \* of each connection: when the last beat was sent that the holder has heard on it
  holds,        \* the holder has not been told that it has the lock no more
  lock,         \* the server has it for the holder
  note,         \* when a head found that nobody listens; -1: it has not
  looked        \* a head has looked in this tick

vars == <<time, alive, died, link, listens, was, heard, wrote, writes, answers, known, beats, last, holds, lock, note, looked>>

Is(rule) == Broken = rule
Max(a, b) == IF a > b THEN a ELSE b
Nothing == -1

Counts == IF Is("beats count before the renewal") THEN link ELSE known
Valid == alive /\ holds /\ time < last[Counts] + Grace

\* The holder gives its connection up, and opens another one. The server may keep the old one for a while.
Connects ==
  /\ alive /\ link < Connections
  /\ link' = link + 1 /\ heard' = FALSE
  /\ beats' = {} \* those of a connection that was given up count no more
  /\ UNCHANGED <<time, alive, died, listens, was, wrote, writes, answers, known, last, holds, lock, note, looked>>

\* Never again on a connection on which it has listened before.
Listens ==
  /\ link \notin listens /\ (Prompt => alive)
  /\ link \notin was \/ Is("it listens again on the same connection")
  /\ listens' = listens \union {link} /\ was' = was \union {link} /\ heard' = TRUE
  /\ UNCHANGED <<time, alive, died, link, wrote, writes, answers, known, beats, last, holds, lock, note, looked>>

\* A connection breaks, or the server takes the channel away. The holder may not notice.
IsCut(connection) ==
  /\ connection \in listens
  /\ listens' = listens \ {connection}
  /\ beats' = {beat \in beats : beat.on # connection \/ beat.done}
  /\ UNCHANGED <<time, alive, died, link, was, heard, wrote, writes, answers, known, last, holds, lock, note, looked>>

\* Only when it listens: before that, a head may note again that nobody does.
Renews ==
  /\ alive /\ wrote < link
  /\ heard \/ Is("the renewal comes first")
  /\ writes' = writes \union {link} /\ wrote' = link
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, answers, known, beats, last, holds, lock, note, looked>>

RenewalRuns(g) ==
  /\ g \in writes /\ (Prompt => alive)
  /\ writes' = writes \ {g}
  /\ note' = IF Is("a renewal leaves the note") THEN note ELSE Nothing
  /\ answers' = answers \union {[for |-> g, held |-> lock]}
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, known, beats, last, holds, lock, looked>>

IsAnswered(answer) ==
  /\ answer \in answers /\ answers' = answers \ {answer}
  /\ IF ~alive THEN UNCHANGED <<known, holds>>
     ELSE IF answer.held \/ Is("the answer is not read") THEN known' = Max(known, answer.for) /\ UNCHANGED holds
     ELSE holds' = FALSE /\ UNCHANGED known
  \* What was heard on earlier connections is of no account any more: fewer states.
  /\ last' = [connection \in DOMAIN last |-> IF connection < known' THEN -Grace ELSE last[connection]]
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, beats, lock, note, looked>>

Beats ==
  /\ alive /\ heard /\ Cardinality(beats) < 2
  /\ beats' = beats \union {[on |-> link, at |-> time, done |-> FALSE]}
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, answers, known, last, holds, lock, note, looked>>

BeatRuns(beat) ==
  /\ beat \in beats /\ ~beat.done /\ beat.on \in listens
  /\ beats' = (beats \ {beat}) \union {[beat EXCEPT !.done = TRUE]}
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, answers, known, last, holds, lock, note, looked>>

IsHeard(beat) ==
  /\ beat \in beats /\ beat.done /\ beats' = beats \ {beat}
  /\ last' = IF ~alive \/ beat.on # link THEN last
             ELSE [last EXCEPT ![link] = Max(@, IF Is("a beat counts from its arrival") THEN time ELSE beat.at)]
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, answers, known, holds, lock, note, looked>>

Dies ==
  /\ alive /\ alive' = FALSE /\ died' = time /\ beats' = {}
  /\ UNCHANGED <<time, link, listens, was, heard, wrote, writes, answers, known, last, holds, lock, note, looked>>

\* What a head does with its sign of life.
Looks ==
  LET nobody == listens = {}
      patience == IF Is("a head waits for less than the grace") THEN Grace - 1 ELSE Grace
  IN
  /\ lock /\ looked' = TRUE
  /\ lock' = ~(nobody /\ note # Nothing /\ time >= note + patience)
  /\ note' = IF ~nobody THEN (IF Is("a note goes on") THEN note ELSE Nothing)
             ELSE IF note # Nothing THEN note ELSE time
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, answers, known, beats, last, holds>>

Tick ==
  /\ time < End /\ time' = time + 1 /\ looked' = FALSE
  /\ Prompt => (looked \/ ~lock) /\ (alive \/ listens = {})
  /\ UNCHANGED <<alive, died, link, listens, was, heard, wrote, writes, answers, known, beats, last, holds, lock, note>>

Init ==
  /\ time = 0 /\ alive = TRUE /\ died = -1 /\ link = 1 /\ listens = {1} /\ was = {1} /\ heard = TRUE
  /\ wrote = 1 /\ writes = {} /\ answers = {} /\ known = 1 /\ beats = {}
  /\ last = [connection \in 1 .. Connections |-> IF connection = 1 THEN 0 ELSE -Grace]
  /\ holds = TRUE /\ lock = TRUE /\ note = Nothing /\ looked = FALSE

Next ==
  \/ Connects \/ Listens \/ Renews \/ Beats \/ Dies \/ Looks \/ Tick
  \/ \E connection \in listens : IsCut(connection)
  \/ \E g \in writes : RenewalRuns(g)
  \/ \E answer \in answers : IsAnswered(answer)
  \/ \E beat \in beats : BeatRuns(beat) \/ IsHeard(beat)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------

\* Whoever the lock was given to is the only one that believes in it.
OneHolder == lock \/ ~Valid

\* Heads that look in each tick have the lock of a dead process a grace later, and one look.
TheDeadAreFreed == ~Prompt \/ ~lock \/ died = -1 \/ time <= died + Grace + 1
=============================================================================
