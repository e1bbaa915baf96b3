/**
 * Benchmark `sixtyDays`: simulates sixty days with a thousand assets and three alert rules within minutes. Kills the functions
 * process five times, and checks that no notification is missing or duplicated. Also runs alone as a command.
 */
import type { DaysOptions, RuleOutcome } from "../../test/support/alert-days.ts";
import { commandLine } from "../build/command-line.ts";
import { atMost, equalTo, type Figure, type Section } from "./section.ts";

const HELP = `node infra/bench/sixty-days.ts

Runs this benchmark alone and prints its figures. The exit code is 1 if a notification is missing or duplicated.`;

const OPTIONS: DaysOptions = {
  days: 60,
  assets: 1000,
  vaults: 10,
  // Days on which a scan runs.
  scans: [7, 20, 33, 46],
  // Each entry kills the process during the day's alert run or scan. The process ends before or after the given table write is
  // applied, or when it calls the given operation of the simulated cloud.
  kills: [
    { day: 0, during: "alerts", at: { write: 3, applied: true } },
    { day: 11, during: "alerts", at: { write: 8, applied: false } },
    { day: 20, during: "scan", at: { write: 12, applied: true } },
    { day: 37, during: "alerts", at: { operation: "mail.getOperation" } },
    { day: 48, during: "alerts", at: { operation: "sink.receive" } },
  ],
  // Days before expiry, for each of the three rules.
  thresholds: { immediate: [30, 7, 1], digest: [14, 3], webhook: [60, 30, 7, 1] },
};

const TITLES: Record<RuleOutcome["rule"], string> = {
  immediate: "mail at once",
  digest: "daily digest",
  webhook: "webhook",
};

/** Returns the figures of the simulation. Prints every missing, duplicate or unexpected notification. */
export async function sixtyDays(): Promise<Section> {
  const { section, errors } = await measure();
  for (const error of errors) console.error(error);
  return section;
}

async function measure(): Promise<{ section: Section; errors: string[] }> {
  const started = performance.now();
  const { runDays } = await import("../../test/support/alert-days.ts");
  const { rules, assets, renewed, scans, kills, mailFiles } = await runDays(OPTIONS);
  const seconds = (performance.now() - started) / 1000;
  const figures = rules.flatMap((outcome): Figure[] => {
    const title = TITLES[outcome.rule];
    return [
      {
        what: `${title}: alerts (asset, expiry and threshold)`,
        value: `${outcome.notified}: ${outcome.missing.length} missing, ${outcome.extra.length} twice or wrong`,
        comparedWith: `${outcome.expected}, computed from the cloud's expiry dates`,
        bound: {
          text: "0 missing, 0 twice or wrong",
          holds: outcome.missing.length + outcome.extra.length === 0,
        },
      },
      {
        what: `${title}: ${outcome.rule === "webhook" ? "distinct webhook ids" : "mails kept"}`,
        value:
          outcome.rule === "webhook" ? `${outcome.distinct}, of ${outcome.messages} requests` : `${outcome.messages}`,
        comparedWith: `${outcome.deliveries} deliveries in the history`,
        bound: equalTo(outcome.rule === "webhook" ? outcome.distinct : outcome.messages, outcome.deliveries),
      },
      {
        what: `${title}: differences between the history and what was received`,
        value: String(outcome.historyDiffers.length),
        comparedWith: "every alert of every entry, and its status",
        bound: equalTo(outcome.historyDiffers.length, 0),
      },
    ];
  });
  const mails = rules.filter(({ rule }) => rule !== "webhook").reduce((sum, { messages }) => sum + messages, 0);
  const errors = rules.flatMap(({ rule, missing, extra, historyDiffers, messages, distinct }) => [
    ...missing.map((notification) => `${rule} missing notification: ${notification}`),
    ...extra.map((notification) => `${rule} duplicate or unexpected notification: ${notification}`),
    ...historyDiffers.map((difference) => `${rule}, the history: ${difference}`),
    ...(rule !== "webhook" && messages !== distinct ? [`${rule}: ${messages} mails for ${distinct} operations`] : []),
  ]);
  if (mailFiles !== mails) errors.push(`${mailFiles} mail files for ${mails} mails`);
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
  return { section, errors };
}

if (import.meta.main) {
  commandLine(HELP, {});
  const { default: setUpTests } = await import("../../test/support/global-setup.ts");
  const tearDown = await setUpTests();
  try {
    const { section, errors } = await measure();
    console.log(`${section.how}\n`);
    for (const { what, value, comparedWith } of section.figures)
      console.log(comparedWith === "" ? `${what}: ${value}` : `${what}: ${value} (${comparedWith})`);
    for (const error of errors) console.error(error);
    if (errors.length > 0) process.exitCode = 1;
  } finally {
    await tearDown();
  }
}
