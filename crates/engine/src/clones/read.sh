# Runs in a sealed box, on a repository that a hostile program may have written. This script is not a
# defence: the sealed box confines every program that git starts, and the host checks the output.
# Input, as environment variables: KNOWN (a commit that the host has), ALSO (a commit that the host wants),
# MESSAGE (the commit message for uncommitted changes). Output: header lines, then a git pack.
exec 3>&2 2>/tmp/stderr
give_up() { { echo "$1"; cat /tmp/stderr; } >&3; exit 3; }

cd /workspace || give_up "cannot change into the workspace"
export GIT_DIR=/workspace/.git GIT_WORK_TREE=/workspace
store=$(git rev-parse --path-format=absolute --git-path objects) || give_up "the workspace is no longer a git repository"
index=$(git rev-parse --path-format=absolute --git-path index)
mkdir -p /tmp/objects/pack /tmp/objects/info || give_up "cannot create a temporary object directory"
export GIT_OBJECT_DIRECTORY=/tmp/objects GIT_ALTERNATE_OBJECT_DIRECTORIES="$store"
export GIT_INDEX_FILE=/tmp/index
if [ -f "$index" ]; then cp -- "$index" /tmp/index || give_up "cannot read the git index"; fi

if git rev-parse -q --verify HEAD >/dev/null; then
    head=$(git rev-parse --verify 'HEAD^{commit}') || give_up "the commit of HEAD is missing"
else
    head=
fi
partial=0
git add -A --ignore-errors -- . || partial=1
ignored=$(git ls-files -o -i --exclude-standard --directory -z | tr -dc '\0' | wc -c)
tree=$(git write-tree) || give_up "cannot read the uncommitted changes"
tip=$head
if [ -n "$head" ]; then
    when=$(git log -1 --no-show-signature --format=%ct "$head")
    if [ "$tree" != "$(git rev-parse "$head^{tree}")" ]; then
        export GIT_AUTHOR_DATE="@$when +0000" GIT_COMMITTER_DATE="@$when +0000"
        tip=$(printf '%s\n' "$MESSAGE" | git commit-tree "$tree" -p "$head") || give_up "cannot commit the uncommitted changes"
    fi
elif [ -n "$(git ls-tree "$tree" | head -c 1)" ]; then
    export GIT_AUTHOR_DATE="@0 +0000" GIT_COMMITTER_DATE="@0 +0000"
    tip=$(printf '%s\n' "$MESSAGE" | git commit-tree "$tree") || give_up "cannot commit the uncommitted changes"
fi
[ -z "$KNOWN" ] || git cat-file -e "$KNOWN^{commit}" || KNOWN=
[ -z "$ALSO" ] || git cat-file -e "$ALSO^{commit}" || ALSO=

echo "belljar-work 1"
echo "head ${head:--}"
echo "tip ${tip:--}"
echo "partial $partial"
echo "ignored $ignored"
git for-each-ref --count=64 --format='%(objectname) %(refname)' refs/heads refs/stash |
    while read -r oid name; do
        more=$(git rev-list --count "$oid" --not ${tip:+"$tip"} ${KNOWN:+"$KNOWN"}) || more=1
        [ "$more" = 0 ] || echo "side $more $name"
    done
if [ -z "$tip" ] || [ "$tip" = "$KNOWN" ]; then
    echo end
    exit 0
fi
echo pack
printf '%s\n' "$tip" ${ALSO:+"$ALSO"} ${KNOWN:+"^$KNOWN"} |
    git pack-objects --revs --thin --stdout --delta-base-offset -q || give_up "cannot pack the objects of the repository"
