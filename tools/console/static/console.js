// Keys, and filters over what a page already shows. Every page works without this file.
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
