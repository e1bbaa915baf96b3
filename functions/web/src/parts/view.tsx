import { makeStyles, mergeClasses, Title3, tokens } from "@fluentui/react-components";
import type { ReactNode } from "react";

const useStyles = makeStyles({
  view: { display: "flex", flexDirection: "column", gap: tokens.spacingVerticalL, overflowWrap: "anywhere" },
  fills: { minHeight: "100%" },
  title: { margin: 0, overflowWrap: "anywhere", unicodeBidi: "isolate" },
});

/**
 * The frame of each view: its heading and its cards below each other.
 *
 * @param props.fills - Whether the view is at least as high as the screen.
 */
export function View({ title, fills = false, children }: { title: string; fills?: boolean; children: ReactNode }) {
  const styles = useStyles();
  return (
    <div className={mergeClasses(styles.view, fills && styles.fills)}>
      <Title3 as="h1" className={styles.title}>
        {title}
      </Title3>
      {children}
    </div>
  );
}
