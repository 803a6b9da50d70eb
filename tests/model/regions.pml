/*
 * The exchange of one region with the store of another (docs/internals/regions.md): a ledger, batches, two agents of
 * which one is elected. `./run` checks all states with SPIN.
 *
 * Property, after every step: what the hosts used is in the ledger, or in the batch in flight if it was not counted yet,
 * or was counted by the other store. So nothing is lost, and nothing counts twice.
 *
 * Every option is one run of a script, or one step of an agent; between steps anything may happen: an agent is killed or
 * stopped at any point and continues later, another one is elected, messages are lost, repeated, and arrive late.
 *
 * BUG=n makes a mistake that the property must find: 1 `done` does not check the term; 2 the sender of a batch is the
 * same in all terms; 3 the other store compares numbers for equality alone; 4 an agent replaces the batch in
 * flight by a new one; 5 the other store does not compare numbers.
 */
#ifndef BUG
#define BUG 0
#endif
#ifndef UNITS
#define UNITS 3
#endif
#define TERMS    3
#define AGENTS   2
#define MESSAGES 2

/* The own store. */
byte used, ledger, term, number;
bool flight;
byte f_sender, f_number, f_units;
/* The other store. */
byte counted, last[TERMS + 1];
/* Agents: the term in which one was elected (0: none), the batch that it took, whether it was acknowledged. */
byte elected[AGENTS], a_sender[AGENTS], a_number[AGENTS], a_units[AGENTS];
bool took[AGENTS], acked[AGENTS];
/* Messages, with the agent that gets the reply. */
bool m_sent[MESSAGES];
byte m_agent[MESSAGES], m_sender[MESSAGES], m_number[MESSAGES], m_units[MESSAGES];

inline check()
{
    assert(ledger + counted + (flight && last[f_sender] < f_number -> f_units : 0) == used)
}

inline take(a)
{
    if
#if BUG != 4
    :: flight -> skip
    :: else ->
#else
    :: true ->
#endif
        number++;
        flight = true;
        f_number = number;
        f_units = ledger;
        ledger = 0;
#if BUG == 2
        f_sender = 1
#else
        f_sender = term
#endif
    fi;
    took[a] = true;
    acked[a] = false;
    a_sender[a] = f_sender;
    a_number[a] = f_number;
    a_units[a] = f_units
}

inline arrive(m)
{
    if
#if BUG == 3
    :: last[m_sender[m]] != m_number[m] -> last[m_sender[m]] = m_number[m]; counted = counted + m_units[m]
#elif BUG == 5
    :: true -> last[m_sender[m]] = m_number[m]; counted = counted + m_units[m]
#else
    :: last[m_sender[m]] < m_number[m] -> last[m_sender[m]] = m_number[m]; counted = counted + m_units[m]
#endif
    :: else -> skip
    fi;
    if /* the reply may be lost */
    :: took[m_agent[m]] && a_sender[m_agent[m]] == m_sender[m] && a_number[m_agent[m]] == m_number[m] ->
        acked[m_agent[m]] = true
    :: skip
    fi
}

inline forget(a)
{
    took[a] = false;
    acked[a] = false;
    a_sender[a] = 0;
    a_number[a] = 0;
    a_units[a] = 0
}

active proctype all()
{
    byte a, m;
    do
    :: atomic { used < UNITS -> used++; ledger++; check() }
    :: atomic { select(a : 0 .. AGENTS - 1); select(m : 0 .. MESSAGES - 1);
        if
        :: term < TERMS -> term++; elected[a] = term; number = 0; forget(a)
        :: elected[a] == term && term > 0 && !took[a] && (flight || ledger > 0) -> take(a)
        :: took[a] && !m_sent[m] ->
            m_sent[m] = true;
            m_agent[m] = a;
            m_sender[m] = a_sender[a];
            m_number[m] = a_number[a];
            m_units[m] = a_units[a]
        :: m_sent[m] -> arrive(m) /* it stays: the same message may arrive again */
        :: m_sent[m] -> m_sent[m] = false; m_agent[m] = 0; m_sender[m] = 0; m_number[m] = 0; m_units[m] = 0
        :: took[a] && acked[a] ->
            if
#if BUG == 1
            :: flight && f_number == a_number[a] ->
#else
            :: elected[a] == term && flight && f_number == a_number[a] ->
#endif
                flight = false;
                f_sender = 0;
                f_number = 0;
                f_units = 0
            :: else -> skip
            fi;
            forget(a)
        :: elected[a] > 0 -> elected[a] = 0; forget(a) /* killed */
        :: else -> skip
        fi;
        a = 0;
        m = 0;
        check() }
    od
}
