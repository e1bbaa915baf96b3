import { Badge, makeStyles, Text, tokens } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { ApiSentence, Instant } from "./instant.tsx";
import { STEP_STATUSES, stepTextOf } from "./rotation-texts.ts";
import { MINUTE_MS, SECOND_MS } from "./time.ts";

type Rotation = Schemas["Rotation"];
type Step = Rotation["steps"][number];

/** Color of each step status, for its badge. */
const COLORS = { done: "success", failed: "danger", running: "brand", waiting: "subtle", skipped: "subtle" } as const;
/** Color of each step status, for its point on the line. */
const POINTS = {
  done: tokens.colorStatusSuccessBackground3,
  failed: tokens.colorStatusDangerBackground3,
  running: tokens.colorBrandBackground,
  waiting: tokens.colorNeutralStroke1,
  skipped: tokens.colorNeutralStroke1,
} as const satisfies Record<Step["status"], string>;

const useStyles = makeStyles({
  list: { listStyleType: "none", margin: 0, padding: 0 },
  // A line from point to point, left of the texts.
  step: {
    position: "relative",
    paddingLeft: "24px",
    paddingBottom: tokens.spacingVerticalM,
    "::before": {
      content: '""',
      position: "absolute",
      left: "5px",
      top: "12px",
      bottom: "-6px",
      width: "2px",
      backgroundColor: tokens.colorNeutralStroke2,
    },
    ":last-child::before": { display: "none" },
  },
  point: { position: "absolute", left: 0, top: "4px", width: "12px", height: "12px", borderRadius: "50%" },
});

/** The steps of a rotation as a timeline: what each one did, when it ran and how long it took, and which ones follow. */
export function RotationTimeline({
  of: rotation,
}: {
  of: Pick<Rotation, "steps" | "overlapDays" | "overlapEndsAt" | "keyKind">;
}) {
  const { steps, overlapDays, overlapEndsAt } = rotation;
  const styles = useStyles();
  return (
    <ol className={styles.list} aria-label="Steps of the rotation">
      {steps.map((step) => {
        const { name, status, finishedAt, failure, result } = step;
        return (
          <li key={name} className={styles.step}>
            <span className={styles.point} style={{ backgroundColor: POINTS[status] }} aria-hidden />
            {stepTextOf(name, rotation)} <Badge color={COLORS[status]}>{STEP_STATUSES[status]}</Badge>{" "}
            {name === "overlap" && overlapDays === 0 && "(0 days, as requested) "}
            {finishedAt && <Instant at={finishedAt} relative />}
            {durationOf(step)}
            {name === "overlap" && status !== "done" && overlapEndsAt && (
              <>
                until <Instant at={overlapEndsAt} />
              </>
            )}
            {result !== null && (
              <Text block>
                <ApiSentence text={result} />
              </Text>
            )}
            {failure && (
              <Text block>
                {failure.message} {failure.remedy}
              </Text>
            )}
          </li>
        );
      })}
    </ol>
  );
}

/** Returns how long a finished step took, if it took at least a second. */
function durationOf({ startedAt, finishedAt }: Step): string {
  if (startedAt === null || finishedAt === null) return "";
  const milliseconds = Date.parse(finishedAt) - Date.parse(startedAt);
  if (!(milliseconds >= SECOND_MS)) return "";
  return milliseconds < MINUTE_MS
    ? `, took ${Math.round(milliseconds / SECOND_MS)} s`
    : `, took ${Math.round(milliseconds / MINUTE_MS)} min`;
}
