import { MessageBar, MessageBarBody } from "@fluentui/react-components";
import { useEffect, useState } from "react";
import { onWaiting } from "../api/events.ts";
import { clockText } from "../parts/dates.ts";
import { useTimeZone } from "../parts/time-zone.ts";
import { useStyles } from "./styles.ts";

/** A notice that the rate limit was reached, with the time at which the page continues. */
export function RateLimitNotice() {
  const styles = useStyles();
  const zone = useTimeZone();
  const [until, setUntil] = useState<Date>();
  useEffect(() => onWaiting(setUntil), []);
  useEffect(() => {
    if (!until) return undefined;
    // The notice stays one second longer than the wait.
    const timer = setTimeout(() => setUntil(undefined), Math.max(0, until.getTime() - Date.now()) + 1_000);
    return () => clearTimeout(timer);
  }, [until]);
  // The live region must exist before its content for a screen reader to announce it.
  return (
    <div role="status" className={styles.waiting}>
      {until && (
        <MessageBar intent="info" layout="multiline">
          <MessageBarBody>
            This page reached the limit of requests in a minute or an hour. It continues automatically at{" "}
            {clockText(until, zone)}, without a reload. Until then, the parts that show “Loading” and the numbers in the
            menu are missing, and other data can be out of date.
          </MessageBarBody>
        </MessageBar>
      )}
    </div>
  );
}
