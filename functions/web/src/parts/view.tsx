import { Button, makeStyles, mergeClasses, Text, Title3, tokens } from "@fluentui/react-components";
import type { ReactNode } from "react";
import { chooseTimeZone, LOCAL_ZONE, useTimeZone } from "./time-zone.ts";

const useStyles = makeStyles({
  view: { display: "flex", flexDirection: "column", gap: tokens.spacingVerticalL, overflowWrap: "anywhere" },
  // The time zone is hidden in a view that shows no time.
  withoutTime: { ":not(:has(time)) > :last-child": { display: "none" } },
  fills: { minHeight: "100%" },
  title: { margin: 0, overflowWrap: "anywhere", unicodeBidi: "isolate" },
});

/**
 * The frame of each view: its heading, its cards below each other, and the time zone of its times.
 *
 * @param props.fills - Whether the view is at least as high as the screen.
 */
export function View({ title, fills = false, children }: { title: string; fills?: boolean; children: ReactNode }) {
  const styles = useStyles();
  return (
    <div className={mergeClasses(styles.view, styles.withoutTime, fills && styles.fills)}>
      <Title3 as="h1" className={styles.title}>
        {title}
      </Title3>
      {children}
      <TimeZone />
    </div>
  );
}

/** The time zone of the times on the page, with a button that selects the other one: the browser's zone or UTC. */
function TimeZone() {
  const zone = useTimeZone();
  const other = zone === "UTC" ? LOCAL_ZONE : "UTC";
  return (
    <Text size={200}>
      Times are in {zone}.{" "}
      {other !== zone && (
        <Button size="small" appearance="subtle" onClick={() => chooseTimeZone(other)}>
          Show times in {other}
        </Button>
      )}
    </Text>
  );
}
