"""What an actor in another process did, and where it stands."""

from __future__ import annotations

from dataclasses import replace

from border_cli.actor_manager.actor_record import ActorRecord, rows_in_proxy
from border_cli.actor_manager.lane import BEATS, ENV_STEPS, GRANTED, LOST, MADE, RESTARTED
from border_cli.actor_manager.leases import WITHOUT_LIMIT
from border_cli.actor_manager.notes import Note, read_note
from border_cli.actor_manager.post import Post
from border_cli.actor_manager.ring_reader import RingReader
from border_cli.core.interfaces import ActorStats
from border_cli.core.timing import ACTOR_SECTIONS


def stats_of(post: Post, reader: RingReader, now_s: float) -> ActorStats:
    """Its counters over the whole run."""
    record = _counted(post, reader, now_s)
    return ActorStats(
        actor_id=record.actor_id,
        env_steps=record.env_steps,
        samples=record.samples,
        duration_s=record.duration_s,
        restarts=record.restarts,
        lost_samples=record.lost,
        restarted_episodes=record.restarted_episodes,
        seconds=dict(zip(ACTOR_SECTIONS, record.seconds, strict=True)),
    )


def record_of(post: Post, reader: RingReader, question: int | None, now_s: float) -> ActorRecord:
    """The same for what the learner received so far, and where the actor stood then.

    That tells its answer to the question, if it fits what was received. One of which nothing was
    received since a resume still stands where it was resumed.
    """
    record = _counted(post, reader, now_s)
    note = read_note(post.lane, question)
    if note is not None and note.messages == reader.messages:
        return _noted(record, post, reader, note)
    if post.before.actor is not None and not reader.messages and not post.restarts.made:
        return replace(
            post.before,
            duration_s=record.duration_s,
            seconds=record.seconds,
            balance=_balance(post, rows_in_proxy(post.before.actor)),
        )
    # What it made and the learner has not received dies with it.
    unsent = post.lane.actor[MADE] - reader.rows
    return replace(record, lost=record.lost + max(0, unsent))


def _counted(post: Post, reader: RingReader, now_s: float) -> ActorRecord:
    words, before = post.lane.actor, post.before
    until_s = post.stopped_s if post.stopped_s is not None else now_s
    lived_s = until_s - post.started_s if post.started_s is not None else 0.0
    began = words[BEATS] > 0  # else no seed was used
    return replace(
        before,
        life=before.next_life + post.restarts.made if began else before.life,
        restarts=post.restarts.total,
        env_steps=words[ENV_STEPS],
        samples=before.samples + reader.rows,
        lost=words[LOST],
        restarted_episodes=words[RESTARTED],
        duration_s=before.duration_s + lived_s,
        seconds=list(post.lane.seconds),
        balance=0,
        actor=None,
    )


def _noted(record: ActorRecord, post: Post, reader: RingReader, note: Note) -> ActorRecord:
    return replace(
        record,
        life=note.life,
        restarts=post.before.restarts + note.life - post.before.next_life,
        env_steps=note.env_steps,
        lost=note.lost,
        balance=_balance(post, reader.rows),
        actor=note.actor,
    )


def _balance(post: Post, made: int) -> int:
    """Leased samples on top of those; none where no limit is known."""
    granted = post.lane.learner[GRANTED]
    return 0 if granted == WITHOUT_LIMIT else granted - made
