/*
 * A Package and an SOS leave by an SBD modem, and whatever can fail fails at any step.
 *
 * Code: agent/channels/satellite.py (SatelliteDriver), agent/channels/sbd_modem.py (Modem),
 * agent/outbound/outbox.py (ChannelOutbox). What is traced has the name of the function there.
 *
 * Claims: what is called Delivered has come to the gateway; every Package ends, by Delivered or by
 * a refusal that was told; no run goes on for ever once the faults are used up.
 * Assumed: a modem counts (MOMSN) no session that brought its full buffer nowhere; a write to the
 * journal is whole or not there; fewer than EMPTY_MAX dips of power leave no trace at all; no other
 * host sends by a modem between the intent to and its end.
 */

#ifndef FAULTS
#define FAULTS 4
#endif
#define DIPS 2		/* EMPTY_MAX - 1 */
#define EMPTY_MAX 3
#define NUMBERS 8	/* MOMSNs; a session moves it by one */
#define PACKAGE 1
#define SOS 2
#define FOREIGN 3	/* what another host left in a modem */

mtype = { waits, taken, delivered, error }
mtype = { SENT, DOUBTFUL, NOT_SENT, REFUSED }
mtype = { open_modem, _session, write, record_intent, session, _verdict, settle, clear, _resolve,
	note_copy, ended, brown_out, dip, other_modem, port_lost, power_fails, accept, reply }

/* The modem and what lies beyond. */
byte imei = 1, momsns[3], buffer, came[4];
#define momsn momsns[imei]
bool used_here;	/* the second of the two modems */
bool echo = true;	/* a reset shows by it */

/* On the kit's disk. */
mtype leg[3] = waits;
bool accepted[3];
byte intent, at_modem, of_modem;

/* In the program's memory. */
bool holds_ours;
byte emptied, keeper;

/* What may yet happen. */
byte faults = FAULTS, dips = DIPS;
bool killed, lost, away;

/* One step of the caller's own. */
byte package, before;
mtype told = SENT, verdict = SENT;
bool moved, wrote, seen, counts, brings, silent;

#define trace(what, value, how) \
	printf("T %e %d %e momsn=%d buffer=%d holds_ours=%d intent=%d at_modem=%d came=%d,%d leg=%e,%e\n", \
		what, value, how, momsn, buffer, holds_ours, intent, (intent -> at_modem : 0), \
		came[PACKAGE], came[SOS], leg[PACKAGE], leg[SOS])

#ifdef WALK
/* A random walk is not to spend its faults at once. */
#define QUIET :: break :: break :: break :: break :: break :: break :: break :: break
#else
#define QUIET :: break
#endif

/* What may happen before the program's next call. */
inline world() {
	do
	QUIET
	:: faults -> faults--; echo = true; buffer = 0; trace(brown_out, 0, SENT)
	:: faults && dips -> faults--; dips--; echo = false; buffer = 0; trace(dip, 0, SENT)
	:: faults && away -> faults--;
		if
		:: !used_here -> used_here = true;
			if :: momsns[2] = 0 :: momsns[2] = (momsn + 1) % NUMBERS fi;
			if :: echo = true :: echo = false fi;
			if :: buffer = 0 :: buffer = FOREIGN fi
		:: else -> echo = true; buffer = 0
		fi;
		imei = 3 - imei;
		trace(other_modem, echo, SENT)
	:: faults && !killed -> faults--; killed = true; trace(power_fails, 0, SENT); break
	:: !accepted[SOS] -> accepted[SOS] = true; trace(accept, SOS, SENT)
	od
}

/* What a step has left behind matters no more. */
inline forget() {
	package = 0; before = 0; told = SENT; verdict = SENT;
	moved = false; wrote = false; seen = false; counts = false; brings = false; silent = false
}

/* The modem is asked: the port may be gone. */
inline line() {
	world();
	if
	:: faults && !killed -> faults--; lost = true; trace(port_lost, 0, SENT)
	:: true
	:: killed
	fi
}

#define unless_killed if :: killed -> goto started :: else fi
#define unless_lost if :: killed -> goto started :: lost -> goto gone :: else fi

/* Modem.status: it sets up a modem that was reset, and learns what the buffer holds. */
inline status() {
	seen = echo;
	holds_ours = holds_ours && !echo && buffer != 0;
	echo = false
}

inline choose_package() {
	if
	:: accepted[SOS] && leg[SOS] == waits -> package = SOS
	:: else -> package = PACKAGE
	fi
}

#define urgent_waits (package != SOS && accepted[SOS] && leg[SOS] == waits)

active proctype kit() {
	accepted[PACKAGE] = true;
started:
	atomic {
		killed = false; lost = false; away = true;
		holds_ours = false; emptied = 0; keeper = 0;
		forget();
		goto opening
	}
gone:
	atomic { lost = false; away = true; holds_ours = false; forget() }
opening:
	atomic {
		world(); unless_killed;
		trace(open_modem, imei, SENT);
		away = false;
		holds_ours = !echo; echo = false;	/* Modem.set_up */
		status()
	}
work:
	atomic { forget() }
	if
	:: intent -> goto resolve
	:: else
	fi;
	if
	:: leg[PACKAGE] != waits && leg[SOS] != waits -> goto done
	:: leg[PACKAGE] != waits && !accepted[SOS] ->
		accepted[SOS] = true; trace(accept, SOS, SENT)
	:: else
	fi;

	/* SatelliteDriver._session, _give */
	atomic {
		line(); unless_lost;
		trace(_session, 0, SENT);
		status(); before = momsn;
		choose_package();
#ifdef FAULT_LOADED_IS_TAKEN_OUT
		leg[package] = taken
#endif
	}
	atomic {
		line();
		if
		:: killed -> goto started
		:: lost -> goto not_given
		:: else
		fi;
		trace(write, package, SENT);
		buffer = package; holds_ours = !echo
	}
	atomic {
		world(); unless_killed;
		trace(record_intent, package, SENT);
		intent = package; at_modem = before; of_modem = imei
	}

converse:
	atomic {
		line(); unless_lost;
		trace(session, 0, SENT);
		holds_ours = holds_ours && !echo	/* +SBDST */
	}
	atomic {
		counts = true; brings = true; silent = false; told = SENT;
		if
		:: true
		:: faults -> faults--;
			if :: counts = false :: true fi;
			if :: !counts -> brings = false :: true fi;
			if :: told = SENT :: told = DOUBTFUL :: told = NOT_SENT :: told = REFUSED fi;
			if :: silent = true :: true fi
		:: faults -> faults--; echo = true; buffer = 0; silent = true; counts = false;
			brings = false; trace(brown_out, 1, SENT); goto gone
		:: faults && dips -> faults--; dips--; echo = false; buffer = 0;
			trace(dip, 1, SENT)	/* between the command and the session */
		fi;
		trace(reply, counts + 2 * brings + 4 * silent, told);
		if :: brings && buffer -> came[buffer] = 1 :: else fi;
		if :: counts -> momsn = (momsn + 1) % NUMBERS :: else fi;
		if :: silent -> goto gone :: else fi
	}
	/* SatelliteDriver._verdict: the table at the head of satellite.py */
	atomic {
		line(); unless_lost;
		trace(_verdict, 0, told);
		wrote = holds_ours;
		status();
		moved = momsn == (before + 1) % NUMBERS;
#ifdef FAULT_BUFFER_NOT_ASKED
		holds_ours = true;
#endif
		if
		:: holds_ours && moved && told == SENT -> keeper = imei; emptied = 0
		:: !holds_ours && wrote && moved && told == SENT && !seen && keeper != imei -> emptied++
		:: !holds_ours && !(wrote && moved && told == SENT && !seen && keeper != imei) -> emptied = 0
		:: else
		fi;
		if
		:: (holds_ours || emptied >= EMPTY_MAX) && moved -> verdict = SENT
		:: (holds_ours || emptied >= EMPTY_MAX) && !moved && told == SENT && momsn == before ->
			verdict = NOT_SENT
		:: (holds_ours || emptied >= EMPTY_MAX) && !moved && told == SENT && momsn != before ->
			verdict = DOUBTFUL
		:: (holds_ours || emptied >= EMPTY_MAX) && !moved && told != SENT -> verdict = told
		:: !(holds_ours || emptied >= EMPTY_MAX) && (moved || told == SENT) -> verdict = DOUBTFUL
		:: !(holds_ours || emptied >= EMPTY_MAX) && !moved && told != SENT -> verdict = told
		fi;
#ifdef FAULT_WORD_BELIEVED
		verdict = told
#endif
	}
	atomic {
		world(); unless_killed;
		trace(settle, package, verdict);
		if
		:: verdict == SENT -> assert(came[package]); leg[package] = delivered; intent = 0
		:: verdict == REFUSED -> leg[package] = error; intent = 0
		:: verdict == NOT_SENT -> intent = 0; leg[package] = waits
		:: verdict == DOUBTFUL -> goto work
		fi
	}
	if
	:: verdict == SENT -> goto cleared
	:: else -> goto work
	fi;

not_given:
	atomic {
		world(); unless_killed;
		trace(settle, package, NOT_SENT);
		intent = 0
	}
	goto gone;

	/* SatelliteDriver._resolve */
resolve:
	atomic {
		line(); unless_lost;
		package = intent;
		trace(_resolve, package, SENT);
		status(); before = momsn;
		moved = momsn == (at_modem + 1) % NUMBERS
	}
	if
#ifdef FAULT_ANY_MODEM
	:: moved && holds_ours -> goto had_left
#else
	:: of_modem == imei && moved && holds_ours -> goto had_left
#endif
	:: else
	fi;
	if
	:: !(of_modem == imei && momsn == at_modem) -> atomic {
		world(); unless_killed;
		trace(note_copy, package, SENT) }
	:: else
	fi;
	if
	:: urgent_waits -> atomic {
		world(); unless_killed;
		trace(settle, package, NOT_SENT);
		intent = 0 };
		goto work
	:: else
	fi;
#ifdef FAULT_GIVEN_BEFORE_THE_INTENT
	atomic { line(); unless_lost; trace(write, package, SENT); buffer = package; holds_ours = !echo }
#endif
	atomic {
		world(); unless_killed;
		trace(record_intent, package, SENT);
		at_modem = before; of_modem = imei
	}
#ifndef FAULT_GIVEN_BEFORE_THE_INTENT
	atomic {
		line(); unless_lost;
		trace(write, package, SENT);
		buffer = package; holds_ours = !echo
	}
#endif
	goto converse;

had_left:
	atomic {
		world(); unless_killed;
		trace(settle, package, SENT);
		assert(came[package]);
		leg[package] = delivered; intent = 0
	}
cleared:
	atomic {
		line(); unless_lost;
		trace(clear, 0, SENT);
		holds_ours = false; buffer = 0
	}
	goto work;

done:
	trace(ended, 0, SENT);
	assert(accepted[SOS]);
	assert(leg[PACKAGE] == delivered || leg[PACKAGE] == error);
	assert(leg[SOS] == delivered || leg[SOS] == error)
}
