# `cpack` makes a Debian package and an archive of the command, the corpus and what a shell and man(1) want; tools/package calls it.
include(GNUInstallDirs)
set(made ${CMAKE_CURRENT_BINARY_DIR}/made)
find_program(HELP2MAN help2man REQUIRED)
add_custom_command(
  OUTPUT ${made}/gradledger.1 ${made}/gradledger ${made}/_gradledger ${made}/gradledger.fish
  COMMAND ${HELP2MAN} --no-info --section=1 --name=${PROJECT_DESCRIPTION} --output=${made}/gradledger.1 $<TARGET_FILE:gradledger>
  COMMAND gradledger completion bash > ${made}/gradledger
  COMMAND gradledger completion zsh > ${made}/_gradledger
  COMMAND gradledger completion fish > ${made}/gradledger.fish
  DEPENDS gradledger VERBATIM)
file(MAKE_DIRECTORY ${made})
add_custom_target(gradledger_made ALL DEPENDS ${made}/gradledger.1)

install(TARGETS gradledger RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
install(DIRECTORY scenarios DESTINATION ${CMAKE_INSTALL_DATADIR}/gradledger COMPONENT command)
install(FILES ${made}/gradledger.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
install(FILES ${made}/gradledger DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)
install(FILES ${made}/_gradledger DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT command)
install(FILES ${made}/gradledger.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT command)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT command)

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_INSTALL_CMAKE_PROJECTS ${CMAKE_BINARY_DIR} gradledger command /)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CONTACT "The gradledger authors <gradledger@users.noreply.github.com>")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "${PROJECT_DESCRIPTION}")
# Linked statically: it depends on nothing.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
include(CPack)
