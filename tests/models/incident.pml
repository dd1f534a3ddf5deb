/*
 * An SOS from its raising to its end: a kit with a satellite modem, the hub, a dispatcher, and a
 * stranger on the air. Whatever goes either way may be lost behind the operator's gateway, and the
 * hub's database may be restored from before the SOS.
 *
 * Code: agent/outbound/repeats.py, agent/inbound/incident_news.py, agent/journal/incident.py,
 * hub/field/mobile_originated.py, hub/records/ledger.py (say_again, answer_again),
 * hub/api/sos_desk.py. What is traced has the name of the function there.
 *
 * Claims: the kit takes its SOS for seen, closed, or at the hub only where that is so; the hub ends
 * it by a person alone; once a person has ended it, every run ends with both sides knowing.
 * Assumed: the kit comes to send something else now and then; a dispatcher answers in the end.
 */

#ifndef FAULTS
#define FAULTS 4
#endif

mtype = { none, raised, seen, closed, called_off }
mtype = { not_owed, waiting, sent }
mtype = { repeat, contact, call_off, acknowledge, close, pack, note_word, restore, ended }

/* The kit. */
mtype kit = raised;
bool at_hub, word_owed, has_left;

/* The hub: its incident, and what it owes the kit of it. */
mtype hub = none;
bool item;	/* it has the SOS's words, and not its number alone */
mtype receipt = not_owed, says_seen = not_owed, says_closed = not_owed;

/* What has truly been, whatever a database has forgotten. */
bool was_there, was_seen, was_closed;

byte faults = FAULTS, passes = 2;
bool lost;

#define over (!is_open(kit) && !word_owed && !is_open(hub))
#define is_open(state) (state == raised || state == seen)
#define trace(what, value, how) \
	printf("T %e %d %e kit=%e at_hub=%d repeats=%d hub=%e item=%d receipt=%e says=%e,%e\n", \
		what, value, how, kit, at_hub, (has_left && is_open(kit) && !at_hub), hub, item, \
		receipt, says_seen, says_closed); \
	assert(kit != seen || was_seen); \
	assert(kit != closed || was_closed); \
	assert(hub != closed || was_closed); \
	assert(!at_hub || was_there)

#ifdef WALK
/* A random walk is to see the rest first. */
#define MAY_CALL_OFF (is_open(kit) && has_left)
#else
#define MAY_CALL_OFF is_open(kit)
#endif

inline may_be_lost() {
	if
	:: lost = false
	:: faults -> faults--; lost = true
	fi
}

/* ledger.say_again: the kit takes for open what a person has seen or closed. */
inline say_again() {
#ifndef FAULT_SAID_ONCE
	if :: hub != raised && says_seen == sent -> says_seen = waiting :: else fi;
	if :: hub != raised && says_closed == sent -> says_closed = waiting :: else fi
#else
	skip
#endif
}

active proctype life() {
	do
	/* The world. */
	:: atomic { faults && !over ->
		faults--;
		if
		:: hub != none -> trace(restore, 0, none);
			hub = none; item = false;
			receipt = not_owed; says_seen = not_owed; says_closed = not_owed
		:: MAY_CALL_OFF -> trace(call_off, 0, none);
			kit = called_off; word_owed = has_left
		:: trace(note_word, 0, seen)
#ifdef FAULT_UNPROVED_COUNTS
			; if :: kit == raised -> kit = seen :: else fi
#endif
		:: trace(note_word, 0, closed)
#ifdef FAULT_UNPROVED_COUNTS
			; if :: is_open(kit) -> kit = closed :: else fi
#endif
		fi }
	:: atomic { !over ->
		/* The kit: an item goes until the hub is known to have it; anything else names it. */
		if
		:: is_open(kit) && !at_hub -> may_be_lost(); trace(repeat, !lost, none);
			has_left = true;
			if
			:: lost
			:: !lost && !item -> was_there = true; item = true; receipt = waiting;
				if :: hub == none -> hub = raised :: else fi
			:: !lost && item -> say_again();
				if :: receipt == sent -> receipt = waiting :: else fi
			fi
		:: is_open(kit) && at_hub -> may_be_lost(); trace(contact, !lost, none);
			if
			:: lost
			:: !lost && hub == none -> hub = raised
			:: !lost && hub != none -> say_again()
			fi
		:: kit == called_off && word_owed -> may_be_lost(); trace(contact, !lost, called_off);
			word_owed = false;
#ifdef FAULT_CALLED_OFF_ENDS_IT
			if :: !lost && is_open(hub) -> hub = closed :: else fi
#endif
		:: else
		fi;
		/* A dispatcher. */
		if
		:: passes && is_open(hub) -> passes--
		:: hub == raised -> trace(acknowledge, 0, none);
			hub = seen; was_seen = true; says_seen = waiting
		:: is_open(hub) -> trace(close, 0, none);
			hub = closed; was_seen = true; was_closed = true; says_closed = waiting
		:: !is_open(hub)
		fi;
		/* What is owed goes down. */
		if
		:: receipt == waiting || says_seen == waiting || says_closed == waiting ->
			may_be_lost(); trace(pack, !lost, none);
			if
			:: !lost && receipt == waiting -> at_hub = true
			:: else
			fi;
			if
			:: !lost && says_seen == waiting && kit == raised -> kit = seen
			:: else
			fi;
			if
			:: !lost && says_closed == waiting && is_open(kit) -> kit = closed
			:: else
			fi;
			if :: receipt == waiting -> receipt = sent :: else fi;
			if :: says_seen == waiting -> says_seen = sent :: else fi;
			if :: says_closed == waiting -> says_closed = sent :: else fi
		:: else
		fi;
		lost = false }
	:: over -> break
	od;
	trace(ended, 0, none)
}
