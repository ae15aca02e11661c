// expect: {"cat":[{"id":1,"score":1.5041},{"id":0,"score":0.4055}],"none":[]}
const docs = ["the cat sat on the mat", "the dog chased the cat", "birds fly south in winter"];
const index = new Map<string, Map<number, number>>();
docs.forEach((doc, id) => {
  for (const word of doc.split(" ")) {
    const postings = index.get(word) ?? new Map<number, number>();
    postings.set(id, (postings.get(id) ?? 0) + 1);
    index.set(word, postings);
  }
});
const score = (query: string) => {
  const scores = new Map<number, number>();
  for (const term of query.split(" ")) {
    const postings = index.get(term);
    if (!postings) continue;
    const idf = Math.log(docs.length / postings.size);
    for (const [id, tf] of postings) scores.set(id, (scores.get(id) ?? 0) + tf * idf);
  }
  return [...scores].sort((a, b) => b[1] - a[1]).map(([id, s]) => ({ id, score: +s.toFixed(4) }));
};
({ cat: score("cat dog"), none: score("zebra") });
