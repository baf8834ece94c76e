// Copies a link, and says so.
for (const button of document.querySelectorAll("[data-copy-text]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copyText);
      button.textContent = "Copied ✓";
    } catch {
      // Not allowed here: the text is marked, so that a long press copies it.
      const shown = button.parentElement.querySelector("code");
      getSelection().selectAllChildren(shown);
      button.textContent = "Marked: copy it from below";
    }
    setTimeout(() => (button.textContent = "Copy Link"), 3000);
  });
}
