/*
 * The protocol of leases (docs/internals/leases.md) for one bucket that refills one unit a tick. `./run` checks all
 * states with SPIN.
 *
 * Property: `ideal` is a bucket of the same size and rate from which every admitted unit is taken when it is admitted.
 * It is never overdrawn, which means: in no interval is more admitted than burst + rate * length.
 *
 * Every option of a process is one atomic step; between steps anything may happen. A message may be lost, be sent again
 * as another message, and be processed after a later one; the store refuses one that was sent a lifetime ago. An agent
 * may be killed before and after each of its steps.
 *
 * BUG=n makes a mistake that the property must find: 1 records do not hold back the refill; 2 a spend is rolled back
 * after a report that did not count it; 3 a grant is put into the slot before it is acknowledged; 4 an old message
 * replaces a newer record; 5 the end of a lease is counted from the reply; 6 neither store nor host deals with a
 * record that does not match;
 * 7 messages have no maximum age; 8 records are forgotten when they expire.
 */
#ifndef BUG
#define BUG 0
#endif
#ifndef BURST
#define BURST 2
#endif
#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef OPS
#define OPS 2 /* lease ops of a host */
#endif
#ifndef TICKS
#define TICKS 3
#endif
#define LIFE 2 /* ticks that a lease lasts */
#if BUG == 8
#define TOMB 0
#else
#define TOMB LIFE
#endif

/* The store. A record of a host: units, last grant and whether `held` was known then, sequence number, ticks left. For the
 * last LIFE ticks it has expired, and is kept for its sequence number alone. */
byte used, rec[HOSTS], last[HOSTS], seq[HOSTS], left[HOSTS];
bool kept[HOSTS];
byte orphan, orphan_left; /* units on record without a name */

/* The property. */
byte ideal = BURST;
byte ticks;

/* A host. Its slot: units and ticks left. `hand`: units that a worker has spent and may roll back; `stale`: the end of
 * the lease has changed since. `acked`: sequence number in the ledger's cell. */
byte slot[HOSTS], ends[HOSTS], hand[HOSTS], acked[HOSTS];
bool stale[HOSTS];

/* The batch in flight, in the ledger: number (0: none), units returned. `number`: the last one that was used. */
byte number[HOSTS], flight[HOSTS], gives[HOSTS];
/* The agent: whether it has sent, ticks since then, and a grant that is acknowledged. m_try and r_try are 1 for the last
 * try, whose reply alone is read. */
byte try[HOSTS], age[HOSTS], grant[HOSTS], life[HOSTS];
bool granting[HOSTS], keeping[HOSTS];

/* Messages: two requests and one reply a host. */
byte m_try[HOSTS * 2], m_seq[HOSTS * 2], m_prev[HOSTS * 2], m_held[HOSTS * 2], m_give[HOSTS * 2],
    m_age[HOSTS * 2];
byte r_try[HOSTS], r_grant[HOSTS], r_life[HOSTS];
bool r_keep[HOSTS];

byte i; /* scratch, always 0 between steps */
byte floor_; /* scratch */

inline records()
{
    floor_ = orphan;
    i = 0;
    do
    :: i < HOSTS -> floor_ = floor_ + rec[i]; i++
    :: else -> break
    od;
    i = 0
}

inline admit(units)
{
    assert(ideal >= units);
    ideal = ideal - units
}

/* Sends the batch in flight. The slot is read and stamped in the same step. */
inline send(h)
{
    stale[h] = true;
    try[h] = 1;
    age[h] = 0;
    r_try[h] = 0; r_grant[h] = 0; r_life[h] = 0; r_keep[h] = false; /* the client discards replies to earlier tries */
    if
    :: m_seq[h * 2] != 0 -> /* of three messages the oldest is lost */
        m_seq[h * 2 + 1] = m_seq[h * 2]; m_prev[h * 2 + 1] = m_prev[h * 2]; m_held[h * 2 + 1] = m_held[h * 2];
        m_give[h * 2 + 1] = m_give[h * 2]; m_age[h * 2 + 1] = m_age[h * 2]
    :: else
    fi;
    m_try[h * 2 + 1] = 0; m_age[h * 2] = 0;
    m_try[h * 2] = try[h]; m_seq[h * 2] = flight[h]; m_prev[h * 2] = acked[h];
    m_held[h * 2] = slot[h]; m_give[h * 2] = gives[h]
}

/* Puts the grant into the slot. `r`: what the reply or the grant says. */
inline put(h, keep_, units, life_)
{
    stale[h] = true;
    if
    :: !keep_ -> slot[h] = units
    :: else -> slot[h] = slot[h] + units
    fi;
    if
    :: life_ > age[h] -> ends[h] = life_ - age[h]
    :: else -> ends[h] = 0; slot[h] = 0
    fi
}

proctype host(byte h)
{
    byte n;
    do
    /* Worker: spends one unit. The request passes, at the time of the spend, or is denied by another rule. */
    :: atomic { slot[h] > 0 && hand[h] == 0 -> slot[h]--; admit(1) }
    :: atomic { slot[h] > 0 && hand[h] == 0 -> slot[h]--; hand[h] = 1; stale[h] = false }
    :: atomic { hand[h] == 1 ->
           hand[h] = 0;
           if
           :: (BUG == 2 || !stale[h]) && ends[h] > 0 -> slot[h]++
           :: else
           fi;
           stale[h] = false }
    /* Worker: a strict take. */
    :: atomic { used < BURST -> used++; admit(1) }
    /* The slot is evicted, or the lease ends early. */
    :: atomic { slot[h] > 0 -> slot[h] = 0; ends[h] = 0; stale[h] = true }
    /* Agent: reports, and returns 0 or 1 unit. */
    :: atomic { flight[h] == 0 && !granting[h] && number[h] < OPS ->
           if
           :: acked[h] == 0 && BUG != 6 -> slot[h] = 0 /* nothing is known of what is there */
           :: else
           fi;
           n = 0;
           if
           :: slot[h] > 0 -> n = 1; slot[h]--
           :: true
           fi;
           number[h]++; flight[h] = number[h]; gives[h] = n; send(h); n = 0 }
    /* Agent: removes a unit from the slot, and is killed before it has recorded the batch. */
    :: atomic { flight[h] == 0 && !granting[h] && slot[h] > 0 -> slot[h]--; stale[h] = true }
    /* Agent: sends again, after a time-out, or as the successor of a killed one. */
    :: atomic { flight[h] != 0 && !granting[h] -> send(h) }
    /* Agent: acknowledges the reply. */
    :: atomic { flight[h] != 0 && !granting[h] && r_try[h] != 0 && r_try[h] == try[h] ->
           if
           :: BUG == 3 -> put(h, r_keep[h], r_grant[h], r_life[h]) /* and may be killed here: `flight` stays */
           :: else ->
               if
               :: acked[h] != flight[h] ->
                   acked[h] = flight[h];
                   granting[h] = true; grant[h] = r_grant[h]; keeping[h] = r_keep[h]; life[h] = r_life[h];
                   if
                   :: BUG == 5 -> age[h] = 0
                   :: else
                   fi
               :: else -> flight[h] = 0; gives[h] = 0
               fi
           fi;
           r_try[h] = 0; r_grant[h] = 0; r_life[h] = 0; r_keep[h] = false;
           if
           :: BUG == 3 && acked[h] != flight[h] ->
               if
               :: acked[h] = flight[h]; flight[h] = 0; gives[h] = 0
               :: true
               fi
           :: else
           fi }
    /* Agent: puts the grant into the slot. */
    :: atomic { granting[h] ->
           put(h, keeping[h], grant[h], life[h]);
           granting[h] = false; grant[h] = 0; life[h] = 0; keeping[h] = false; flight[h] = 0; gives[h] = 0; age[h] = 0 }
    /* Agent: is killed instead. The batch in flight is acknowledged: its successor gets nothing for it. */
    :: atomic { granting[h] ->
           granting[h] = false; grant[h] = 0; life[h] = 0; keeping[h] = false }
    /* The ledger is lost, but not the slot. The new one has another name; here: the number goes on. */
    :: atomic { acked[h] != 0 && flight[h] == 0 && !granting[h] -> acked[h] = 0 }
    /* The reply is lost. */
    :: atomic { r_try[h] != 0 -> r_try[h] = 0; r_grant[h] = 0; r_life[h] = 0; r_keep[h] = false }
    od
}

#define LIVE(h) (left[h] > TOMB)
#define rec_seq_equal(h, m) (left[h] > 0 && seq[h] == m_seq[m])

/* Executes message m of host h. */
inline execute(h, m)
{
    if
    :: rec_seq_equal(h, m) -> /* a repetition */
        g = last[h]; k = kept[h]
    :: !rec_seq_equal(h, m) && left[h] > 0 && seq[h] > m_seq[m] && BUG != 4 -> /* an old message */
        g = 0; k = false; old = true
    :: else ->
        k = LIVE(h) && m_prev[m] != 0 && seq[h] == m_prev[m];
        if
        :: BUG == 4 -> k = k || LIVE(h)
        :: else
        fi;
        if
        :: k -> used = used - m_give[m]; rec[h] = m_held[m]
        :: !k && LIVE(h) && BUG != 6 ->
            orphan = orphan + rec[h];
            if
            :: left[h] - TOMB > orphan_left -> orphan_left = left[h] - TOMB
            :: else
            fi;
            rec[h] = 0
        :: else -> rec[h] = 0
        fi;
        /* Grants 0 units, or 1, or all. */
        g = 0;
        if
        :: used < BURST -> g = 1
        :: used < BURST -> g = BURST - used
        :: true
        fi;
        used = used + g; rec[h] = rec[h] + g;
        last[h] = g; kept[h] = k; seq[h] = m_seq[m]; left[h] = LIFE + TOMB
    fi;
    if
    :: !old && m_try[m] -> r_try[h] = 1; r_grant[h] = g; r_keep[h] = k; r_life[h] = (LIVE(h) -> left[h] - TOMB : 0)
    :: else
    fi
}

proctype store()
{
    byte h, m, g;
    bool k, old;
    do
    :: atomic {
           if
           :: m_seq[0] != 0 -> h = 0; m = 0
           :: m_seq[1] != 0 -> h = 0; m = 1
#if HOSTS > 1
           :: m_seq[2] != 0 -> h = 1; m = 2
           :: m_seq[3] != 0 -> h = 1; m = 3
#endif
           fi;
           if
           :: m_age[m] < LIFE || BUG == 7 -> execute(h, m)
           :: true /* lost */
           fi;
           m_try[m] = 0; m_seq[m] = 0; m_prev[m] = 0; m_held[m] = 0; m_give[m] = 0; m_age[m] = 0;
           h = 0; m = 0; g = 0; k = false; old = false }
    od
}

proctype clock()
{
    byte h;
    do
    :: atomic { ticks < TICKS ->
           ticks++;
           records();
           if
           :: BUG == 1 && used > 0 -> used--
           :: BUG != 1 && used > floor_ -> used--
           :: else
           fi;
           floor_ = 0;
           ideal = (ideal < BURST -> ideal + 1 : BURST);
           orphan_left = (orphan_left > 0 -> orphan_left - 1 : 0);
           orphan = (orphan_left > 0 -> orphan : 0);
           h = 0;
           do
           :: h < HOSTS ->
               left[h] = (left[h] > 0 -> left[h] - 1 : 0);
               if
               :: left[h] == 0 -> rec[h] = 0; last[h] = 0; kept[h] = false; seq[h] = 0
               :: left[h] > 0 && !LIVE(h) -> rec[h] = 0
               :: else
               fi;
               ends[h] = (ends[h] > 0 -> ends[h] - 1 : 0);
               if
               :: ends[h] == 0 -> slot[h] = 0; stale[h] = true
               :: else
               fi;
               age[h] = ((try[h] > 0 && age[h] < LIFE) -> age[h] + 1 : age[h]);
               m_age[h * 2] = ((m_seq[h * 2] > 0 && m_age[h * 2] < LIFE) -> m_age[h * 2] + 1 : m_age[h * 2]);
               m_age[h * 2 + 1] = ((m_seq[h * 2 + 1] > 0 && m_age[h * 2 + 1] < LIFE) -> m_age[h * 2 + 1] + 1 : m_age[h * 2 + 1]);
               h++
           :: else -> break
           od;
           h = 0 }
    od
}

init
{
    atomic {
        run host(0);
#if HOSTS > 1
        run host(1);
#endif
        run store();
        run clock()
    }
}
