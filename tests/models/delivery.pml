/*
 * An item from the hub to a kit that has a link and a satellite modem at once: what goes by either
 * may be lost, come twice, or be confirmed in vain, and the hub's database may be restored from the
 * moment of the push.
 *
 * Code: hub/field/mobile_terminated.py (pack), hub/field/operator_calls.py (carry_out),
 * hub/field/mailbox.py (load, stored, returned), hub/field/mobile_originated.py (take_in),
 * agent/inbound/hub_reception.py (receive), agent/inbound/reception.py (store_message). What is traced has
 * the name of the function there.
 *
 * Claims: the kit hands it to its programs once at the most; the hub says `stored` only where it is
 * on the kit's disk; every run ends with it there, and the hub knowing.
 * Assumed: the link comes up in the end. Over satellite alone nobody sends again what the operator
 * has taken and lost.
 */

#ifndef FAULTS
#define FAULTS 6
#endif

mtype = { waiting, packed, sent, stored }
mtype = { none, ready }
mtype = { pack, carry_out, receive, take_in, load, restore, ended }
mtype = { taken, doubtful, refused, needless, arrived, lost, kept, unconfirmed, returned, nothing }

/* The hub: its delivery, and a message to the operator, which is ready or not there. */
mtype delivery = waiting, message = none;
/* Copies of the message at the operator's gateway. */
byte gateway;
/* The kit: how often its programs got it, and whether it owes a receipt over satellite. */
byte handed;
bool owes;

byte faults = FAULTS, passes = 6;
/* How often somebody may let the others go first: each order of what happens is a run. */

#define has (handed > 0)
#define over (delivery == stored && has && message == none && !gateway && !owes)
#define trace(what, how) \
	printf("T %e 0 %e delivery=%e message=%e handed=%d owes=%d\n", \
		what, how, delivery, message, handed, owes); \
	assert(handed <= 1); \
	assert(delivery != stored || has)

inline take() {
#ifdef FAULT_FORGETS
	handed++
#else
	if :: !has -> handed++ :: else fi
#endif
}

active proctype life() {
	do
	:: atomic { faults && !over && has ->
		faults--; trace(restore, none);
		delivery = waiting; message = none }
	:: atomic { !over ->
		/* The hub, toward the operator. */
		if
		:: delivery == waiting && passes -> passes--
		:: delivery == waiting -> trace(pack, none);
			delivery = packed; message = ready
		:: else
		fi;
		if
		:: message == ready && passes -> passes--
		:: message == ready && delivery == stored -> trace(carry_out, needless);
			message = none
		:: message == ready && delivery != stored -> trace(carry_out, taken);
			message = none; gateway++;
			if :: delivery == packed -> delivery = sent :: else fi
		:: message == ready && delivery != stored && faults -> faults--;
			trace(carry_out, doubtful);
			gateway++
		:: message == ready && delivery != stored && faults -> faults--;
			trace(carry_out, refused)
		:: else
		fi;
		/* The kit's modem. */
		if
		:: gateway && passes -> passes--
		:: gateway -> trace(receive, arrived);
			gateway--; take(); owes = true
		:: gateway && faults -> faults--; trace(receive, lost);
			gateway--
		:: gateway && faults -> faults--; trace(receive, kept);
			take(); owes = true
		:: else
		fi;
		if
		:: owes && passes -> passes--
		:: owes -> trace(take_in, arrived);
			owes = false; delivery = stored
		:: owes && faults -> faults--; trace(take_in, lost);
			owes = false
		:: else
		fi;
		/* The link. */
		if
#ifdef FAULT_SENT_IS_DONE
		:: delivery == sent -> trace(load, nothing)
#endif
		:: delivery != stored && passes -> passes--
#ifdef FAULT_SENT_IS_DONE
		:: delivery != stored && delivery != sent ->
#else
		:: delivery != stored ->
#endif
			trace(load, arrived);
			take(); delivery = stored
		:: delivery != stored && faults -> faults--; trace(load, returned)
#ifdef FAULT_LOADED_IS_STORED
			; delivery = stored
#endif
		:: delivery != stored && faults -> faults--; trace(load, unconfirmed);
			take()
		:: delivery == stored -> trace(load, nothing)
		fi }
	:: over -> break
	od;
	trace(ended, none)
}
