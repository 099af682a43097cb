// Keys, filters over what a page already shows, and records as they come. Every other page works
// without this file.
"use strict";

const typing = (element) => element.closest("input, select, textarea, [contenteditable]");
const visible = () =>
  [...document.querySelectorAll(".rows > tbody > tr")].filter((row) => !row.hidden);

function move(step) {
  const rows = visible();
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement.closest(".rows > tbody > tr"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
  next.tabIndex = -1;
  next.focus();
}

function open(row) {
  const details = row.querySelector("details");
  if (details) details.open = !details.open;
  else row.querySelector("a")?.click();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (event.key === "Escape" && typing(target)) return target.blur();
  if (typing(target)) return;
  const row = target.closest?.(".rows > tbody > tr");
  if (event.key === "/") document.querySelector("[data-focus], [data-filter]")?.focus();
  else if (event.key === "j" || (event.key === "ArrowDown" && row)) move(1);
  else if (event.key === "k" || (event.key === "ArrowUp" && row)) move(-1);
  else if (event.key === "Enter" && row === target && row) open(row);
  else return;
  event.preventDefault();
});

for (const input of document.querySelectorAll("[data-filter]")) {
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    for (const row of document.querySelectorAll(`${input.dataset.filter} > tbody > tr`)) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
  });
}

for (const input of document.querySelectorAll("[data-chooses]")) {
  input.addEventListener("input", () => {
    if (input.value) input.form.elements.from.value = input.dataset.chooses;
  });
}

const FOLLOWED_MAX = 200; // rows that a page keeps

function follow(table) {
  const body = table.tBodies[0];
  const state = document.querySelector("#state");
  const pause = document.querySelector("[data-pause]");
  let source = null;
  let count = 0;

  const end = (text) => {
    source?.close();
    source = null;
    pause.textContent = "Go on";
    state.textContent = text;
  };
  const begin = () => {
    pause.textContent = "Pause";
    state.textContent = "Waiting for records.";
    source = new EventSource(table.dataset.follow);
    source.addEventListener("records", (event) => {
      const rows = document.createElement("template");
      rows.innerHTML = event.data; // made and escaped by our server; no script in it could run
      for (const row of [...rows.content.children]) {
        body.prepend(row);
        count += 1;
      }
      while (body.rows.length > FOLLOWED_MAX) body.lastElementChild.remove();
      state.textContent = `${count} records have come.`;
    });
    source.addEventListener("note", (event) => { state.textContent = event.data; });
    source.addEventListener("over", (event) => end(event.data));
    source.onerror = () => { if (source) state.textContent = "Interrupted; trying again."; };
  };
  pause.addEventListener("click", () => (source ? end("Paused.") : begin()));
  begin();
}

for (const table of document.querySelectorAll("[data-follow]")) follow(table);
