#!/usr/bin/env bash
# Removes the guards of the daemons and of the core one at a time, in a scratch copy, and runs the tests that should notice. Prints a table:
# guard, test that caught it. Exits with 1 if a guard can be removed without a failing test.
#
#   tests/guards.sh            all of them, about a quarter of an hour on 2 cores
#   tests/guards.sh settled    those whose names contain this
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$scratch"
cd "$scratch"
git init -q && git add -A && git -c user.name=guards -c user.email=guards@localhost commit -qm base
export CARGO_TARGET_DIR=${GUARDS_TARGET_DIR:-$scratch/target} CARGO_TERM_COLOR=never

# A guard: its name, the crate and the filter of the tests that should notice, the file, and a Perl substitution that removes it.
guards=(
    # The daemons.
    'the storer drops a plan that is too old|storer|apply::|crates/storer/src/apply.rs|s/read_at\.elapsed\(\) > PLAN_LIFETIME/false/'
    'the restorer drops a plan that is too old|restorer|apply::|crates/restorer/src/apply.rs|s/seen_at\.elapsed\(\) > PLAN_LIFETIME/false/'
    'the restorer uses a view for 5 s|restorer|apply::|crates/restorer/src/apply.rs|s{seen_at\.elapsed\(\) < PLAN_LIFETIME / 2}{true}'
    'the restorer reads a node again after a refused write|restorer|apply::|crates/restorer/src/apply.rs|s/tries == 0 && is_young/is_young/'
    'another incarnation is decided upon again before it is restored|restorer|apply::|crates/restorer/src/apply.rs|s/task\.decided\.is_none_or\(/false \&\& task.decided.is_none_or(/'
    'final labels that a record has are not pending|restorer|planner::|crates/restorer/src/planner.rs|s/self\.retire_final_labels\(cache, \|other\| other == key, None\);//'
    'final labels of an incarnation before a restored one are dropped|restorer|planner::|crates/restorer/src/planner.rs|s/self\.retire_final_labels\(cache, \|other\| other == key, Some\(live\)\);//'
    'final labels that do not count are dropped with each list|restorer|planner::|crates/restorer/src/planner.rs|s/self\.retire_final_labels\(cache, \|_\| true, None\);//'
    'final labels that are history are not stored|storer|apply::|crates/label-storage/src/store.rs|s/last\.filter\(\|last\| !is_history\(last\)\)/last.filter(|last| !is_history(last) || true)/'
    'an answer that still has a deleted node is old|storer|apply::|crates/label-storage/src/store.rs|s/is_believed\.then_some\(Sighting::Live\(live\)\)/Some(Sighting::Live(live)).filter(|_| is_believed || true)/'
    'a node that was re-created meanwhile is decided upon again|storer|apply::|crates/storer/src/apply.rs|s/&& plan\.reason\.takes_over\(\)/&& !plan.reason.takes_over()/'
    'a write without an answer is followed by another|storer|apply::|crates/storer/src/apply.rs|s/in_doubt: self\.metrics\.in_doubt\.holds\(key, version\)/in_doubt: self.metrics.in_doubt.holds(key, version) \&\& false/'
    'a write is in doubt until it is answered|storer|apply::|crates/storer/src/in_doubt.rs|s/=> WriteAnswer::Unknown/=> WriteAnswer::Refused/'
    'writes of shards that were handed over are forgotten|storer|in_doubt::|crates/storer/src/in_doubt.rs|s/sent_at\.elapsed\(\) < LIFETIME/true/'
    'a lost label is added once an hour|storer|planner::|crates/storer/src/planner.rs|s/may_add_label: !self\.labelled\.contains_key\(entry\.key\(\)\)/may_add_label: true/'
    'a lost label is added again|label-storage|store::|crates/label-storage/src/store.rs|s/if at\.may_add_label && record/if false \&\& record/'
    'a record that is being deleted is not written to|storer|apply::|crates/storer/src/apply.rs|s/deletion_timestamp\.is_some\(\)/deletion_timestamp.is_some() && false/'
    'final labels are kept while a write is under way (storer)|storer|planner::|crates/label-storage/src/store.rs|s/is_unsettled \|\| is_worth_keeping/false \&\& is_unsettled || is_worth_keeping/'
    'final labels are kept while a write is in doubt|storer|planner::|crates/storer/src/planner.rs|s/is_in_doubt: self\.metrics\.in_doubt\.contains\(key\), \.\.writes/..writes/'
    'final labels are kept while a write is under way (engine)|label-storage-runtime|engine::|crates/runtime/src/engine.rs|s/self\.queue\.writes\(&key\)/Default::default()/'
    'a record waits for the watch before another incarnation takes it|storer|planner::|crates/storer/src/planner.rs|s/if self\.watch_lag\.must_wait\(/if false \&\& self.watch_lag.must_wait(/'
    'a node waits for final labels before it is restored|restorer|planner::|crates/restorer/src/planner.rs|s/if final_labels\.is_empty\(\) \|\| is_unreadable/if true || is_unreadable/'
    'a node is restored from final labels that are not stored yet|restorer|planner::|crates/restorer/src/planner.rs|s/if can_anticipate\(entry\.stored\(\), &self\.rules\) \{ final_labels \}/if false { final_labels }/'
    'a node waits no longer than the startup taint may stay|restorer|planner::|crates/restorer/src/planner.rs|s/\.filter\(\|_\| !is_overdue\)//'
    'an edit of a record counts more than final labels|restorer|planner::|crates/restorer/src/planner.rs|s/self\.note_record\(entry\);//'
    'a write by a storer is no edit|restorer|planner::|crates/label-storage/src/restore/anticipation.rs|s/now\.labels != self\.labels && now\.version <= self\.version/now.labels != self.labels/'
    'the first position is written at once|label-storage-runtime|shard_manager::|crates/runtime/src/shard_manager.rs|s/known\.next\(\)\.await\?/known.next().await.flatten().filter(|_| false)/'
    'the position in the lease names what is pending|label-storage-runtime|engine::|crates/runtime/src/informer.rs|s/final_labels\.unstored\(\)\.map/final_labels.unstored().filter(|_| false).map/'
    'a deletion that was dealt with before is settled|label-storage-runtime|engine::|crates/runtime/src/engine.rs|s/!was_contested && !self\.informers\.is_stored\(&key, version\)/!was_contested/'
    'a watch resumes once the records are listed|label-storage-runtime|engine::|crates/runtime/src/informer.rs|s/is_time\(\*until\)/true/'
    'a position from the future is dropped|label-storage-runtime|engine::|crates/runtime/src/informer.rs|s/= self\.progress\.check\(listed\)/= self.progress.check(ResourceVersion(u64::MAX))/'
    'a position is given up only if the server does not know it|label-storage-runtime|list_watch::|crates/runtime/src/list_watch.rs|s/error\.code == Some\(410\) \|\|/error.code.is_some() ||/'
    'lists of nodes and records go back by themselves|label-storage-runtime|engine::|crates/runtime/src/informer.rs|s/\(informer\.latest, informer\.older\) = \(listed\.version, 0\);/informer.latest = listed.version; self.informers.iter_mut().for_each(|informer| informer.older = 0);/'
    'a list that is older than one before is none|label-storage-runtime|engine::|crates/runtime/src/informer.rs|s/if listed\.version < informer\.latest/if false/'
    'an object that is older in a later list shows another history|label-storage-runtime|engine::|crates/runtime/src/engine.rs|s/if self\.cache\.is_of_another_history\(list, listed\.version\)/if false/'
    'a list that was overtaken shows no other history|label-storage-runtime|engine::|crates/runtime/src/cache.rs|s/of == list && known <= version/of == list/'
    'a turn that comes too early is no success|label-storage-runtime|engine::|crates/runtime/src/engine.rs|s/Err\(pause\) => self\.queue\.put_back\(&key, pause\.map\(\|pause\| now \+ pause\)\)/Err(pause) => { self.queue.done(\&key); pause.into_iter().for_each(|pause| self.queue.push(\&key, Urgency::Soon, Some(now + pause))) }/'
    'an answer that is older than what was seen is refused|label-storage-runtime|cache::|crates/runtime/src/cache/freshness.rs|s/read < known && !is_over\(self\.doubt\.get\(\)\.stale_since\)/false/'
    'a fresh answer ends the doubt|label-storage-runtime|cache::|crates/runtime/src/cache/freshness.rs|s/Some\(_\) => None,/Some(_) => doubt.stale_since,/'
    'what was there is asked for again|label-storage-runtime|cache::|crates/runtime/src/cache/freshness.rs|s/self\.is_there && absent < ABSENT/false/'
    'other answers do not count towards accepting a 404|label-storage-runtime|cache::|crates/runtime/src/cache/freshness.rs|s/if read\.is_none\(\) \{ self/if true { self/'
    'a stale answer is accepted after a time|label-storage-runtime|cache::|crates/runtime/src/cache/freshness.rs|s/since\.elapsed\(\) >= STALE/false/'
    'answers that were refused count for the next attempt|label-storage-runtime|engine::|crates/runtime/src/engine.rs|s/\.after\(self\.queue\.doubts\(&key\)\)//'
    'few of many that have failed are tried again in a second|label-storage-runtime|work_queue::|crates/runtime/src/work_queue.rs|s/pause\.max\(all\)\.max\(retry_after\)/pause.max(retry_after)/'
    'what would be lost does not wait|label-storage-runtime|work_queue::|crates/runtime/src/work_queue.rs|s/urgency == Urgency::Urgent && \*present != Urgency::Urgent/false/'
    'a watch that goes on is waited for|label-storage|watch_lag::|crates/label-storage/src/watch_lag.rs|s/if heard > wait\.heard/if false/'
    'a node is waited for at the version that was seen first|label-storage|watch_lag::|crates/label-storage/src/watch_lag.rs|s/heard < wait\.version/heard < version/'
    'another incarnation is waited for again|label-storage|watch_lag::|crates/label-storage/src/watch_lag.rs|s/if wait\.uid != uid/if false/'
    'a lease that is refused again is an error|label-storage-runtime|shard_manager::|crates/runtime/src/shard_manager.rs|s/error\.kind == FailureKind::Moved && !is_repeated/error.kind == FailureKind::Moved/'
    'a lease that a long list lacks is read by its name|label-storage-runtime|lease::|crates/runtime/src/lease.rs|s/\(!is_complete \|\| doubtful\.contains\(shard\)\)/doubtful.contains(shard)/'
    'a renewal that has landed counts|label-storage-runtime|shard_manager::|crates/runtime/src/shard_manager.rs|s/seen\.claim\.renewed_at == Some\(\*renewed_at\)/false/'
    'a renewal of another process does not count|label-storage-runtime|shard_manager::|crates/runtime/src/shard_manager.rs|s/seen\.claim\.renewed_at == Some\(\*renewed_at\)/true/'
    'a renewal that was sent too long ago does not count|label-storage-runtime|shard_manager::|crates/runtime/src/shard_manager.rs|s/sent_at\.elapsed\(\) < RENEW_DEADLINE\)\n/true)\n/'
    'what was begun before a lease ended is not continued after its renewal|label-storage-runtime|lease::|crates/runtime/src/lease/deadline.rs|s/ \|\| self\.term\(\) != term//'
    'lists from before a lease ended are dropped|label-storage-runtime|fresh::|crates/runtime/src/fresh.rs|s/if self\.term != term/if false/'
    'a holder counts only if it was seen to renew|label-storage-runtime|lease::|crates/runtime/src/lease/tracker.rs|s/has_changed: false/has_changed: true/'
    'a node that keeps changing is patched with tests|restorer|apply::|crates/restorer/src/apply.rs|s/if !is_tested \{/if true {/'
    'a patch that rests on more than it tests needs the version|restorer|apply::|crates/restorer/src/apply.rs|s/tries >= CHANGING && may_be_tested/tries >= CHANGING || may_be_tested/; s/node\.extras\.identity\.is_none\(\) && !rules/!rules/'
    'what is stored is not pending any more|label-storage-runtime|engine::|crates/runtime/src/informer.rs|s/final_labels\.len\(\) <= MANY \|\| self\.published_at/self.published_at/'
    'nothing is decided before all nodes are known that may have the same identity|label-storage-runtime|engine::|crates/runtime/src/engine.rs|s/entry\.key\(\)\.is_identity\(\) && !self\.informers\.has_listed\(Resource::Nodes\)/false/'
    'a node that a gap of the watch may have deleted contests nothing|label-storage-runtime|engine::|crates/runtime/src/engine.rs|s/self\.cache\.note_gap\(until\)/let _ = until/'
    'a gap of the watch ends with a list|label-storage-runtime|engine::|crates/runtime/src/cache.rs|s/self\.drop_contested\(\);//'
    'a forgotten deletion costs no later ones|label-storage-runtime|engine::|crates/runtime/src/informer.rs|s/self\.progress\.give_up_pending\(\)/None::<label_storage::position::Pending>/'
    'final labels of another history are still stored|label-storage-runtime|engine::|crates/runtime/src/cache.rs|s/keys\.iter\(\)\.for_each\(\|key\| _ = self\.record\(key\)\);/let _ = keys;/'
    'final labels wait for other final labels alone|label-storage-runtime|work_queue::|crates/runtime/src/work_queue.rs|s/self\.retry_seconds\(is_urgent\)/self.retry_seconds(false)/'
    'bad luck does not wait for others|label-storage-runtime|work_queue::|crates/runtime/src/work_queue.rs|s/if is_bad_luck \{ 0\.0 \} else/if false { 0.0 } else/'
    'a patch tests what it changes|label-storage-runtime|patch::|crates/runtime/src/patch.rs|s/json!\(\{"op": "test", "path": path, "value": from\}\), //; s/fn change\([^)]*\Kfrom: Value/_: Value/'
    'a list that began too early for an attempt is not used|label-storage-runtime|fresh::|crates/runtime/src/fresh.rs|s/listed\.began >= after/true/'
    'a list is used for 8 s|label-storage-runtime|fresh::|crates/runtime/src/fresh.rs|s/listed\.began\.elapsed\(\) < LIFETIME/true/'
    'a list is not used again after a refused write|label-storage-runtime|fresh::|crates/runtime/src/fresh.rs|s/\.filter\(\|_\| tries == 0\)//'
    'a listed record that was deleted since is not used|label-storage-runtime|fresh::|crates/runtime/src/fresh.rs|s/\.filter\(\|found\| !is_deleted\(found\)\)//'
    'tidy writes do not wait forever|label-storage-runtime|work_queue::|crates/runtime/src/work_queue/burst.rs|s/\.min\(first \+ LONGEST\)//'
    'tidy writes wait until nodes stop changing|label-storage-runtime|work_queue::|crates/runtime/src/work_queue.rs|s/ \|\| self\.burst\.ends_at\(now\)\.is_some\(\)//'
    'departures are few while nodes change|label-storage-runtime|work_queue::|crates/runtime/src/work_queue.rs|s/self\.departures_from\(now\)\.is_some\(\)/false/'
    'a departure is no tidy write|label-storage-runtime|work_queue::|crates/runtime/src/work_queue.rs|s/Urgency::Departed => self\.departures_from\(now\)\.is_some\(\)/Urgency::Departed => self.burst.ends_at(now).is_some()/'
    'a node that can not be decoded is not absent|label-storage-runtime|engine::|crates/runtime/src/engine.rs|s/self\.cache\.keep_node\(list, &name\)/()/'
    'a list with an object of unknown key shows no absence|label-storage-runtime|engine::|crates/runtime/src/engine.rs|s/_ if self\.unclear_list == Some\(list\) => false,//'
    'what a list can not decode is read by name|label-storage-runtime|fresh::|crates/runtime/src/fresh.rs|s/Err\(undecodable\) => _ = found\.remove\(&undecodable\.part\.name\)/Err(_) => ()/'
    'a name that is not UTF-8 names no machine|label-storage-runtime|projection::|crates/runtime/src/projection.rs|s/ && label::is_intact\(&text\)//'
    # The core.
    'a position counts until the watch has come to it|label-storage|watch_progress::|crates/label-storage/src/watch_progress.rs|s/is_confirmed && resumed\.version <= at/is_confirmed/'
    'a resumed watch is confirmed by a list|label-storage|watch_progress::|crates/label-storage/src/watch_progress.rs|s/is_confirmed && resumed\.version <= at/resumed.version <= at/'
    'a position ahead of the cluster is dropped|label-storage|watch_progress::|crates/label-storage/src/watch_progress.rs|s/take_if\(\|position\| !is_possible\(position\)\)/take_if(|position| !is_possible(position) \&\& false)/'
    'what the holder before had pending stays pending|label-storage|watch_progress::|crates/label-storage/src/watch_progress.rs|s/pending\.chain\(resumed\.pending\.iter\(\)\)/pending/'
    'a new incarnation is not believed before it is restored|label-storage|store::|crates/label-storage/src/store.rs|s/if !same_incarnation && !restored/if false/'
    'a view that is older than the record does not replace it|label-storage|store::|crates/label-storage/src/store.rs|s/if !is_later && is_older/if false/'
    'a deletion counts only if it is newer than the record|label-storage|store::|crates/label-storage/src/store.rs|s/node\.version <= version/node.version < version/'
    'an emptied record stays for half a minute|label-storage|store::|crates/label-storage/src/store.rs|s/if at\.unchanged_for >= TOMBSTONE_LIFETIME \{/if true {/'
    'a record that is over is seen unchanged for half a minute|label-storage|store::|crates/label-storage/src/store.rs|s/ && at\.unchanged_for >= TOMBSTONE_LIFETIME//'
    'final labels are kept even if there are none|label-storage|store::|crates/label-storage/src/store.rs|s/Stored::Nothing \| Stored::Unreadable => true,/Stored::Nothing => !last.labels.is_empty(),\n        Stored::Unreadable => true,/'
    'final labels are kept while the record is unreadable|label-storage|store::|crates/label-storage/src/store.rs|s/Stored::Nothing \| Stored::Unreadable => true,/Stored::Nothing => true,\n        Stored::Unreadable => false,/'
    'nothing is restored where nothing was stored before|label-storage|restore::|crates/label-storage/src/restore/anticipation.rs|s/let is_tombstone = .*?;/let is_tombstone = false;/'
    'a later restore makes final labels obsolete for the restorer|label-storage|restore::|crates/label-storage/src/restore/anticipation.rs|s/ && !live\.is_some_and\(is_superseding\)/ \&\& !live.is_some_and(|live| false \&\& is_superseding(live))/'
    'earlier final labels change the record first|label-storage|restore::|crates/label-storage/src/restore/anticipation.rs|s/\(has_earlier \|\| record\.labels/(has_earlier \&\& false || record.labels/'
    'a write that may arrive is refused by another|label-storage|store::|crates/label-storage/src/store.rs|s/Stored::Record\(record\)\) if at\.in_doubt/Stored::Record(record)) if at.in_doubt && false/'
    'a create that may arrive is refused by an empty record|label-storage|store::|crates/label-storage/src/store.rs|s/if at\.in_doubt && matches!\(reason, Reason::NoLabels \| Reason::NotSelected\)/if at.in_doubt \&\& reason == Reason::FirstSeen/'
    'a departed record has the version of the deletion|label-storage|store::|crates/label-storage/src/store.rs|s/at\.last_seen\.filter/None::<LastSeen>.filter/'
    'a marker holds for its own incarnation|label-storage|node::|crates/label-storage/src/node.rs|s/marker\.next\(\)\.filter\(\|_\| is_own\)\?/marker.next().filter(|_| is_own || true)?/'
    'a marker holds for its own ConfigMap|label-storage|node::|crates/label-storage/src/summary.rs|s/from\.record == self\.id\s*&& //'
    'a marker holds until the labels change|label-storage|store::|crates/label-storage/src/summary.rs|s/from\.generation >= labels\.get\(\)/from.generation >= labels.get() || true/'
    'a label that a node has is not overwritten|label-storage|restore::|crates/label-storage/src/restore.rs|s/if winner == Winner::Record \{/if true {/'
    'the same incarnation is not restored|label-storage|restore::|crates/label-storage/src/restore.rs|s/Stored::Record\(record\) if record\.is_of\(node\) => Reason::SameIncarnation,//'
    'bare incarnations push out no final labels|label-storage|final_labels::|crates/label-storage/src/final_labels.rs|s/last\.restored_from\(\)\.is_none\(\) && last\.labels/false && last.labels/'
    'final labels are bounded|label-storage|final_labels::|crates/label-storage/src/final_labels.rs|s/let is_full = self\.len >= MOST/let is_full = false/'
    'nodes without labels push out no final labels|label-storage|final_labels::|crates/label-storage/src/final_labels.rs|s/if let Some\(bare\) = bare\.map/if let Some(bare) = bare.filter(|_| false).map/'
    'what is pending is not settled|label-storage|position::|crates/label-storage/src/position.rs|s/deleted_at <= self\.version && !is_pending/deleted_at <= self.version \&\& (!is_pending || true)/'
    'a position stays before what it does not name|label-storage|position::|crates/label-storage/src/position.rs|s/pending\.get\(MOST\)\.map_or\(heard, \|\(_, version\)\| before\(\*version\)\)/heard/'
    'a list that lacks many nodes is not used|label-storage|mass_absence::|crates/label-storage/src/mass_absence.rs|s/is_large && !was_doubted/false/'
    'the record wins only over a node that was never restored|label-storage|record::|crates/label-storage/src/record.rs|s/is_first\s*&& rules\.conflicts/rules.conflicts/'
    'an annotation that was not UTF-8 is not restored|label-storage|record::|crates/label-storage/src/item.rs|s/ && label::is_intact\(value\)//'
    'what is not UTF-8 identifies no node|label-storage|seen::|crates/label-storage/src/seen.rs|s/ && label::is_intact\(value\)//'
    'trust is withheld from another name|label-storage|restore::|crates/label-storage/src/record.rs|s/rules\.identity\.is_forgeable\(\) && self/false \&\& self/'
    'trust labels are withheld from another machine|label-storage|restore::|crates/label-storage/src/record.rs|s/OtherMachine::Untrusted => item\.is_trust\(\)/OtherMachine::Untrusted => false/'
    'another machine is excluded|label-storage|restore::|crates/label-storage/src/seen.rs|s/self\.other_machine == OtherMachine::None && node/false \&\& node/'
    'a withheld item keeps the node that had it|label-storage|restore::|crates/label-storage/src/record.rs|s/Origin \{ node: node\.as_deref\(\), machine \}/Origin { node: node.as_deref().and(Some(\&self.node)), machine }/'
    'a label that kubelets may not change is a trust label|label-storage|item::|crates/label-storage/src/item.rs|s/\["kubernetes\.io", "k8s\.io"\]/["node-restriction.kubernetes.io", "k8s.io"]/'
    'a node that was stored under another identity is left alone|label-storage-runtime|cache::|crates/runtime/src/cache/entry.rs|s/self\.node\(\)\.is_some_and\(\|node\| self\.is_stranger/false \&\& self.node().is_some_and(|node| self.is_stranger/'
    'what the cluster refuses is withheld|label-storage|restore::|crates/label-storage/src/restore.rs|s/node\.extras\.refused\.contains_key\(&kept\.to_string\(\)\)/false/'
    'only an answer about the content is a refusal|restorer|apply::|crates/restorer/src/apply/refusal.rs|s/matches!\(error\.code, Some\(400 \| 403 \| 422\)\)/error.code.is_some()/'
    'a denial of the authorizer is not about items|restorer|apply::|crates/restorer/src/apply/refusal.rs|s/&& !is_unauthorized\(error\)//'
    'a refusal is confirmed|restorer|apply::|crates/restorer/src/apply/refusal.rs|s/Ok\(\(\)\) => _ = accepted\.insert\(name\)/Ok(()) => _ = refused.insert(name.to_owned(), String::new())/'
    'what was refused is tried again|label-storage|restore::|crates/label-storage/src/restore/schedule.rs|s/self\.until_retry\.filter/None::<Duration>.filter/'
    'what a person has removed is not tried again|label-storage|restore::|crates/label-storage/src/restore.rs|s/is_named\(name\) && is_lacking/is_lacking/'
    'a ConfigMap that never was a record is left alone|label-storage|record::|crates/label-storage/src/record/config_map.rs|s/if is_unlabelled && !names/if false \&\& !names/'
    'a record that has lost its label is used|label-storage|record::|crates/label-storage/src/record/config_map.rs|s/if is_unlabelled && .*? \{/if is_unlabelled {/'
)

printf '| guard | test that caught it |\n|---|---|\n'
missed=0
for guard in "${guards[@]}"; do
    # The substitution is the rest of the line: it may have bars in it.
    IFS='|' read -r name package filter file substitution <<<"$guard"
    [[ $name == *"${1-}"* ]] || continue
    perl -0pi -e "$substitution" "$file"
    if git diff --quiet; then
        printf '| %s | **not found in %s** |\n' "$name" "$file"
        missed=1
        continue
    fi
    RUSTFLAGS="${RUSTFLAGS-} -Awarnings" cargo test --quiet --offline -p "$package" --lib -- "$filter" >"$scratch/log" 2>&1 || true
    caught=$(sed -n 's/^    \([a-z_:0-9]*::[a-z_:0-9]*\)$/\1/p' "$scratch/log" | sort -u | head -n 1)
    if [[ -z $caught ]]; then
        missed=1
        if grep -q '^error' "$scratch/log" && ! grep -q 'test result' "$scratch/log"; then
            caught='**does not compile**'
        else
            caught='**none**'
        fi
    else
        caught="\`$package\` \`$caught\`"
    fi
    printf '| %s | %s |\n' "$name" "$caught"
    git checkout -q .
done
exit $missed
