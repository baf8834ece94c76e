// Times: relative where people read, exact in the viewer's zone and in UTC on hover.
const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
// The clock of the database, not of this machine, decides what "ago" means.
const began = Date.now();
const there = Number(document.documentElement.dataset.now) || began;

function words(moment) {
  const seconds = (there + (Date.now() - began) - moment) / 1000;
  const size = Math.abs(seconds);
  if (size < 1.5) return "now";
  const [, divisor, unit] = [[90, 1, "s"], [5400, 60, "min"], [129600, 3600, "h"], [Infinity, 86400, "days"]].find(
    ([limit]) => size < limit,
  );
  const text = `${Math.round(size / divisor)} ${unit}`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

export function showTimes() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    if (!element.dataset.said) {
      element.dataset.said = "yes";
      element.title = `${zone.format(moment)}\n${element.title}`;
    }
    if (element.dataset.relative !== undefined) {
      const text = words(moment.getTime());
      if (element.textContent !== text) element.textContent = text;
    }
    if (element.dataset.clock !== undefined) element.textContent = moment.toLocaleTimeString([], { hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  }
}

setInterval(() => document.visibilityState === "visible" && showTimes(), 5000);
