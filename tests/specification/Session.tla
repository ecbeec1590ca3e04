------------------------------ MODULE Session ------------------------------
(* Holds that end with the process: a design, of which nothing is built yet. README.md says what it showed.          *)
(*                                                                                                                   *)
(* A client listens to a channel of its own, on one connection at a time, and sends a beat there and hears it. A     *)
(* hold counts until a grace after the sending of the last beat that was heard. The head of a line looks at how many *)
(* listen to the holder's channel. If that was nobody, and still is a grace later, the head has the lock.            *)
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
  wrote,        \* the last generation that it has sent
  writes,       \* generations under way
  gen,          \* the generation at the server: the number of a connection
  answers,      \* to generations, under way: whether the lock was still the holder's
  known,        \* the generation whose answer the holder has
  beats,        \* under way: on which connection, sent when, and whether it has reached the channel
  last,         \* when the last beat was sent that the holder has heard
  holds,        \* the holder has not been told that it has the lock no more
  lock,         \* the server has it for the holder
  note,         \* when a head found that nobody listens, and the generation then
  looked        \* a head has looked in this tick

vars == <<time, alive, died, link, listens, was, heard, wrote, writes, gen, answers, known, beats, last, holds, lock, note, looked>>

Is(rule) == Broken = rule
Max(a, b) == IF a > b THEN a ELSE b
Nothing == [at |-> -1, gen |-> 0]

Valid == alive /\ holds /\ time < last + Grace

\* The holder gives its connection up, and opens another one. The server may keep the old one for a while.
Connects ==
  /\ alive /\ link < Connections
  /\ link' = link + 1 /\ heard' = FALSE
  /\ UNCHANGED <<time, alive, died, listens, was, wrote, writes, gen, answers, known, beats, last, holds, lock, note, looked>>

\* Never again on a connection on which it has listened before.
Listens ==
  /\ link \notin listens /\ (Prompt => alive)
  /\ link \notin was \/ Is("it listens again on the same connection")
  /\ listens' = listens \union {link} /\ was' = was \union {link} /\ heard' = TRUE
  /\ UNCHANGED <<time, alive, died, link, wrote, writes, gen, answers, known, beats, last, holds, lock, note, looked>>

\* A connection breaks, or the server takes the channel away. The holder may not notice.
IsCut(connection) ==
  /\ connection \in listens
  /\ listens' = listens \ {connection}
  /\ beats' = {beat \in beats : beat.on # connection \/ beat.done}
  /\ UNCHANGED <<time, alive, died, link, was, heard, wrote, writes, gen, answers, known, last, holds, lock, note, looked>>

\* Only when it listens: before that, nobody listens to this generation either, and a head may find that.
Writes ==
  /\ alive /\ wrote < link
  /\ heard \/ Is("the generation comes first")
  /\ writes' = writes \union {link} /\ wrote' = link
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, gen, answers, known, beats, last, holds, lock, note, looked>>

WriteRuns(g) ==
  /\ g \in writes /\ (Prompt => alive)
  /\ writes' = writes \ {g} /\ gen' = Max(gen, g)
  /\ answers' = answers \union {[gen |-> g, held |-> lock]}
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, known, beats, last, holds, lock, note, looked>>

IsAnswered(answer) ==
  /\ answer \in answers /\ answers' = answers \ {answer}
  /\ IF ~alive \/ answer.gen # link THEN UNCHANGED <<known, holds>>
     ELSE IF answer.held \/ Is("the answer is not read") THEN known' = link /\ UNCHANGED holds
     ELSE holds' = FALSE /\ UNCHANGED known
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, gen, beats, last, lock, note, looked>>

\* Once the server has the generation.
Beats ==
  /\ alive /\ heard /\ Cardinality(beats) < 2
  /\ known = link \/ Is("beats do not wait for the generation")
  /\ beats' = beats \union {[on |-> link, at |-> time, done |-> FALSE]}
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, gen, answers, known, last, holds, lock, note, looked>>

BeatRuns(beat) ==
  /\ beat \in beats /\ ~beat.done /\ beat.on \in listens
  /\ beats' = (beats \ {beat}) \union {[beat EXCEPT !.done = TRUE]}
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, gen, answers, known, last, holds, lock, note, looked>>

IsHeard(beat) ==
  /\ beat \in beats /\ beat.done /\ beats' = beats \ {beat}
  /\ last' = IF ~alive \/ beat.on # link THEN last ELSE Max(last, IF Is("a beat counts from its arrival") THEN time ELSE beat.at)
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, gen, answers, known, holds, lock, note, looked>>

Dies ==
  /\ alive /\ alive' = FALSE /\ died' = time
  /\ UNCHANGED <<time, link, listens, was, heard, wrote, writes, gen, answers, known, beats, last, holds, lock, note, looked>>

\* What a head does with its sign of life.
Looks ==
  LET nobody == listens = {}
      same == note.gen = gen \/ Is("a note is for any generation")
      patience == IF Is("a head waits for less than the grace") THEN Grace - 1 ELSE Grace
  IN
  /\ lock /\ looked' = TRUE
  /\ lock' = ~(nobody /\ note # Nothing /\ same /\ time >= note.at + patience)
  /\ note' = IF ~nobody \/ (note # Nothing /\ same) THEN note
             ELSE IF note # Nothing /\ Is("a note goes on") THEN [note EXCEPT !.gen = gen]
             ELSE [at |-> time, gen |-> gen]
  /\ UNCHANGED <<time, alive, died, link, listens, was, heard, wrote, writes, gen, answers, known, beats, last, holds>>

Tick ==
  /\ time < End /\ time' = time + 1 /\ looked' = FALSE
  /\ Prompt => (looked \/ ~lock) /\ (alive \/ listens = {})
  /\ UNCHANGED <<alive, died, link, listens, was, heard, wrote, writes, gen, answers, known, beats, last, holds, lock, note>>

Init ==
  /\ time = 0 /\ alive = TRUE /\ died = -1 /\ link = 1 /\ listens = {1} /\ was = {1} /\ heard = TRUE
  /\ wrote = 1 /\ writes = {} /\ gen = 1 /\ answers = {} /\ known = 1 /\ beats = {} /\ last = 0
  /\ holds = TRUE /\ lock = TRUE /\ note = Nothing /\ looked = FALSE

Next ==
  \/ Connects \/ Listens \/ Writes \/ Beats \/ Dies \/ Looks \/ Tick
  \/ \E connection \in listens : IsCut(connection)
  \/ \E g \in writes : WriteRuns(g)
  \/ \E answer \in answers : IsAnswered(answer)
  \/ \E beat \in beats : BeatRuns(beat) \/ IsHeard(beat)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------

\* Whoever the lock was given to is the only one that believes in it.
OneHolder == lock \/ ~Valid

\* Heads that look in each tick have the lock of a dead process a grace later, and one look.
TheDeadAreFreed == ~Prompt \/ ~lock \/ died = -1 \/ time <= died + Grace + 1
=============================================================================
