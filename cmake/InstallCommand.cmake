# `cmake --install BUILD --component command`: the command, the corpus, the pages, and what a shell and man(1) want, made by the command itself.
include(GNUInstallDirs)
set(made ${CMAKE_CURRENT_BINARY_DIR}/made)
file(MAKE_DIRECTORY ${made})
add_custom_command(
  OUTPUT ${made}/gradledger.1 ${made}/gradledger ${made}/_gradledger ${made}/gradledger.fish
  COMMAND gradledger man > ${made}/gradledger.1
  COMMAND gradledger completion bash > ${made}/gradledger
  COMMAND gradledger completion zsh > ${made}/_gradledger
  COMMAND gradledger completion fish > ${made}/gradledger.fish
  DEPENDS gradledger VERBATIM)
add_custom_target(gradledger_made ALL DEPENDS ${made}/gradledger.1)

install(TARGETS gradledger RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
install(DIRECTORY scenarios DESTINATION ${CMAKE_INSTALL_DATADIR}/gradledger COMPONENT command)
install(FILES ${made}/gradledger.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
install(FILES ${made}/gradledger DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)
install(FILES ${made}/_gradledger DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT command)
install(FILES ${made}/gradledger.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT command)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT command)
