/** Simulates sixty days with a thousand assets and three rules within minutes. The functions process is killed five times. */
import type { DaysOptions, RuleOutcome } from "../../test/support/alert-days.ts";
import { commandLine } from "../build/command-line.ts";
import { atMost, equalTo, type Figure, type Section } from "./section.ts";

const HELP = `node infra/bench/sixty-days.ts

Runs this benchmark alone and prints its figures. The exit code is 1 if a notification is missing or duplicated.`;

const OPTIONS: DaysOptions = {
  days: 60,
  assets: 1000,
  vaults: 10,
  scans: [7, 20, 33, 46],
  kills: [
    { day: 0, during: "alerts", at: { write: 3, applied: true } },
    { day: 11, during: "alerts", at: { write: 8, applied: false } },
    { day: 20, during: "scan", at: { write: 12, applied: true } },
    { day: 37, during: "alerts", at: { operation: "mail.getOperation" } },
    { day: 48, during: "alerts", at: { operation: "sink.receive" } },
  ],
  thresholds: { immediate: [30, 7, 1], digest: [14, 3], webhook: [60, 30, 7, 1] },
};

const TITLES: Record<RuleOutcome["rule"], string> = {
  immediate: "mail at once",
  digest: "daily digest",
  webhook: "webhook",
};

/** Measures whether sixty days of alerts contain every notification exactly once, although the process is killed. */
export async function sixtyDays(): Promise<Section> {
  const { section, wrong } = await measure();
  for (const line of wrong) console.error(line);
  return section;
}

async function measure(): Promise<{ section: Section; wrong: string[] }> {
  const started = performance.now();
  const { runDays } = await import("../../test/support/alert-days.ts");
  const { rules, assets, renewed, scans, kills, mailFiles } = await runDays(OPTIONS);
  const seconds = (performance.now() - started) / 1000;
  const figures = rules.flatMap((one): Figure[] => {
    const title = TITLES[one.rule];
    return [
      {
        what: `${title}: alerts (asset, expiry and threshold)`,
        value: `${one.notified}: ${one.missing.length} missing, ${one.extra.length} twice or wrong`,
        comparedWith: `${one.expected}, computed from the cloud's expiry dates`,
        bound: {
          text: "0 missing, 0 twice or wrong",
          holds: one.missing.length + one.extra.length === 0,
        },
      },
      {
        what: `${title}: ${one.rule === "webhook" ? "distinct webhook ids" : "mails kept"}`,
        value: one.rule === "webhook" ? `${one.distinct}, of ${one.messages} requests` : `${one.messages}`,
        comparedWith: `${one.deliveries} deliveries in the history`,
        bound: equalTo(one.rule === "webhook" ? one.distinct : one.messages, one.deliveries),
      },
      {
        what: `${title}: differences between the history and what was received`,
        value: String(one.historyDiffers.length),
        comparedWith: "every alert of every entry, and its status",
        bound: equalTo(one.historyDiffers.length, 0),
      },
    ];
  });
  const mails = rules.filter(({ rule }) => rule !== "webhook").reduce((sum, { messages }) => sum + messages, 0);
  const wrong = rules.flatMap(({ rule, missing, extra, historyDiffers, messages, distinct }) => [
    ...missing.map((notification) => `${rule} missing notification: ${notification}`),
    ...extra.map((notification) => `${rule} duplicate or unexpected notification: ${notification}`),
    ...historyDiffers.map((difference) => `${rule}, the history: ${difference}`),
    ...(rule !== "webhook" && messages !== distinct ? [`${rule}: ${messages} mails for ${distinct} operations`] : []),
  ]);
  if (mailFiles !== mails) wrong.push(`${mailFiles} mail files for ${mails} mails`);
  const section = {
    title: "Sixty days of alerts",
    how: `${assets} assets, ${renewed} renewals, ${scans} scans, the alert timer once a day, with the clocks of the functions process and of the simulated cloud moved day by day. The functions process was killed with SIGKILL ${kills.length} times: ${kills.join("; ")}. After a kill, a webhook may be posted again with the same id, but a mail may not be sent again.`,
    figures: [
      ...figures,
      {
        what: "mail files kept",
        value: String(mailFiles),
        comparedWith: `${mails} mails`,
        bound: equalTo(mailFiles, mails),
      },
      {
        what: "seconds for the sixty days",
        value: seconds.toFixed(0),
        comparedWith: "",
        bound: atMost(seconds, 600, " s"),
      },
    ],
  };
  return { section, wrong };
}

if (import.meta.main) {
  commandLine(HELP, {});
  const { default: setup } = await import("../../test/support/global-setup.ts");
  const remove = await setup();
  try {
    const { section, wrong } = await measure();
    console.log(`${section.how}\n`);
    for (const { what, value, comparedWith } of section.figures)
      console.log(comparedWith === "" ? `${what}: ${value}` : `${what}: ${value} (${comparedWith})`);
    for (const line of wrong) console.error(line);
    if (wrong.length > 0) process.exitCode = 1;
  } finally {
    await remove();
  }
}
