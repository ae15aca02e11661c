// expect: {"size":8,"type":"text/plain","text":"hello wo","slice":"hello","name":"value","file":"a.txt","keys":["name","file"],"ab":8}
const blob = new Blob(["hello ", new Uint8Array([119, 111])], { type: "text/plain" });
const f = new FormData();
f.append("name", "value");
f.append("file", blob, "a.txt");
({ size: blob.size, type: blob.type, text: await blob.text(), slice: await blob.slice(0, 5).text(), name: f.get("name"), file: f.get("file").name, keys: [...f.keys()], ab: (await blob.arrayBuffer()).byteLength });
