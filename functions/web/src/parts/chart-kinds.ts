/** Those that are drawn, so that no other is in the bundle. */
export { LineChart, VerticalStackedBarChart } from "@fluentui/react-charts";
